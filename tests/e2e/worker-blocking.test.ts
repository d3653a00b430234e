import { type ChildProcess, spawn } from "node:child_process";
import { Session } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import { openJobFleet } from "../../packages/server/testing/job-fleet.ts";

const POOL = "computes";
/** Longer than the server waits for a node whose pings are not answered: 15 s at most. */
const BLOCKED_MS = 17_000;

/** A process, because the main thread of this one has the server. */
function startWorker(url: string): ChildProcess {
  const code = `
    import { Worker } from "@tenure/sdk";
    const worker = new Worker({
      url: ${JSON.stringify(url)}, pools: ["${POOL}"], capacity: 1, blocking: true,
      run({ payload, attempt_id }) {
        const endMs = performance.now() + payload.ms;
        while (performance.now() < endMs);
        return { attempt_id };
      },
    });
    process.on("SIGTERM", () => worker.close());`;
  return spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: "inherit" });
}

test("a blocking worker computes for longer than the server waits for pings, in one attempt", async () => {
  const fleet = await openJobFleet("redis", { instances: 1 });
  const [app] = fleet.apps;
  const worker = startWorker(app!.url);
  const exited = new Promise<number | null>((resolve) => worker.once("exit", resolve));
  const session = new Session({ url: app!.url });
  try {
    const nodes = async () => {
      const response = await fetch(`${app!.url}/api/v1/nodes`);
      const { items } = (await response.json()) as {
        items: { online: boolean; reserved: number; stuck?: number; capacity: number }[];
      };
      return items.filter(({ online }) => online);
    };
    const job = session.submit({
      pool: POOL,
      payload: { ms: BLOCKED_MS },
      timeoutMs: BLOCKED_MS + 20_000,
    });
    await until(async () => (await nodes()).some(({ stuck }) => stuck === 1), {
      what: "the stalled worker to be shown as full",
    });
    expect(await job).toMatchObject({ outcome: "succeeded", body: { attempt_id: 1 } });
    await until(async () => (await nodes()).some(({ reserved }) => reserved === 0), {
      what: "the worker to be free",
    });
    expect(await session.submit({ pool: POOL, payload: { ms: 10 } })).toMatchObject({
      body: { attempt_id: 1 },
    });
  } finally {
    await session.close();
    worker.kill("SIGTERM");
    expect(await exited).toBe(0);
    await fleet.stop();
  }
}, 120_000);
