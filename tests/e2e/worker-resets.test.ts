import { setTimeout as wait } from "node:timers/promises";
import { Session, Worker } from "@tenure/sdk";
import { startProxy } from "@tenure/testing/processes/proxy";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openJobFleet } from "../../packages/server/testing/job-fleet.ts";

test("a worker whose connection is reset three times runs its job once", async () => {
  const fleet = await openJobFleet("redis", { instances: 2 });
  const proxies = await Promise.all(
    fleet.apps.map(({ url }) => startProxy({ targetPort: Number(new URL(url).port) })),
  );
  const urls = proxies.map(({ port }) => `http://127.0.0.1:${port}`);
  const told = { begun: 0, aborted: 0, connected: 0 };
  let end = () => {};
  const worker = new Worker({
    url: urls,
    pools: ["resets"],
    capacity: 1,
    async run(_, { signal }) {
      told.begun += 1;
      signal.addEventListener("abort", () => {
        told.aborted += 1;
      });
      await new Promise<void>((resolve) => {
        end = resolve;
      });
      return "done";
    },
    on: {
      ready() {
        told.connected += 1;
      },
    },
  });
  const session = new Session({ url: fleet.apps.map(({ url }) => url) });
  try {
    const job = session.submit({ pool: "resets", payload: null });
    await until(() => told.begun === 1, { what: "the job to begin" });
    for (let reset = 1; reset <= 3; reset++) {
      for (const proxy of proxies) proxy.reset();
      await until(() => told.connected === reset + 1, { what: "the worker to be back" });
      await wait(1_100); // longer than a job is left to a node that is away
    }
    end();
    expect(await job).toMatchObject({ outcome: "succeeded", attempt_id: 1, body: "done" });
    expect(told).toMatchObject({ begun: 1, aborted: 0 });
  } finally {
    await session.close();
    await worker.close();
    for (const proxy of proxies) proxy.stop();
    await fleet.stop();
  }
});
