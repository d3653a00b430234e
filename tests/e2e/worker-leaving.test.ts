import { Session, Worker } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openJobFleet } from "../../packages/server/testing/job-fleet.ts";

test("a worker that closes is left out by the other instances before it has gone", async () => {
  // Rounds further apart than the test waits: what the other instance knows in time, it was told.
  const env = { TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "10000" };
  const fleet = await openJobFleet("redis", { instances: 2, env });
  const [a, b] = fleet.apps;
  let end = () => {};
  const worker = new Worker({
    ...{ url: a!.url, pools: ["leaving"], capacity: 2 },
    run: () =>
      new Promise<void>((resolve) => {
        end = resolve;
      }),
  });
  const session = new Session({ url: b!.url });
  try {
    const job = session.submit({ pool: "leaving", payload: null });
    await until(() => worker.held === 1, { what: "the job to begin" });
    const closed = worker.close();
    const isDraining = async () =>
      (await fleet.ask(b!, "GET", `/nodes/${worker.nodeId}`)).body.draining === true;
    await until(isDraining, {
      deadlineMs: 5_000,
      what: "the worker draining at the other instance",
    });
    end();
    expect(await job).toMatchObject({ outcome: "succeeded", attempt_id: 1 });
    await closed;
  } finally {
    end();
    await session.close();
    await worker.close();
    await fleet.stop();
  }
});
