import { Session, Worker } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";
import type { App } from "../../packages/server/src/app.ts";
import { openJobFleet } from "../../packages/server/testing/job-fleet.ts";

const POOL = "hung";

test("a worker whose runs do not end when they are stopped gets no job, and is shown as full, until they end", async () => {
  const fleet = await openJobFleet("redis", {
    instances: 2,
    env: { TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: "1" },
  });
  const urls = fleet.apps.map(({ url }) => url);
  const release: (() => void)[] = [];
  const ran: string[] = [];
  const start = (name: string) =>
    new Worker<string>({
      url: urls[0]!,
      pools: [POOL],
      capacity: 2,
      name,
      async run({ payload }) {
        ran.push(`${name} ${payload}`);
        if (payload !== "hang") return name;
        return new Promise<void>((resolve) => release.push(resolve));
      },
    });
  const hung = start("hung");
  const sessions = urls.map((url) => new Session({ url }));
  const workers = [hung];
  try {
    const jobs = ["hang", "hang"].map((payload) =>
      sessions[1]!.submit({ pool: POOL, payload, timeoutMs: 200 }),
    );
    const ends = await Promise.allSettled(jobs);
    expect(ends.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    for (const app of fleet.apps) await until(() => shows(app, 2), { what: "2 of 2 slots stuck" });

    const other = start("other");
    workers.push(other);
    await until(() => other.nodeId, { what: "the other worker" });
    for (let n = 0; n < 10; n++) {
      const job = await sessions[n % 2]!.submit<string>({ pool: POOL, payload: `job ${n}` });
      expect(job).toMatchObject({ body: "other", attempt_id: 1 });
    }
    await other.close();

    for (const end of release) end();
    for (const app of fleet.apps) await until(() => shows(app, 0), { what: "free slots" });
    expect(await sessions[1]!.submit({ pool: POOL, payload: "last" })).toMatchObject({
      body: "hung",
    });
    expect(ran.filter((each) => each.startsWith("hung"))).toHaveLength(3);
  } finally {
    for (const end of release) end();
    await Promise.all(sessions.map((session) => session.close()));
    await Promise.all(workers.map((worker) => worker.close()));
    await fleet.stop();
  }

  async function shows(app: App, stuck: number): Promise<boolean> {
    const { body } = await fleet.ask(app, "GET", `/nodes/${hung.nodeId}`);
    // The instance of the node knows what is reserved as it changes.
    const reserved = app === fleet.apps[0] ? body.reserved : stuck;
    return reserved === stuck && (body.stuck ?? 0) === stuck;
  }
});
