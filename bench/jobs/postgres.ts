import { startServer, storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase } from "@tenure/testing/stores/database";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { Logger, type Runner, run } from "graphile-worker";
import PgBoss from "pg-boss";
import type { Bench } from "../bench.ts";
import { median, type Row, renderTable } from "../table.ts";
import { type Begun, drive, type SubmitJob, type Timed, wallMs } from "./drive.ts";
import { createStage, submitterOn, workerOn } from "./processes.ts";

const AT_ONCE = 128;
const ROUND_MS = 5_000;
const ROUNDS = 3;
/** The shortest that pg-boss allows. */
const PG_BOSS_POLL_SECONDS = 0.5;
const QUEUE = "bench";

/**
 * Queues that keep every job in Postgres: another promise than a job's in Redis, and another way. They bring no result
 * back, so submitter and worker are one process here, which spares them a way that ours goes twice.
 */
export const jobsPostgres: Bench = {
  name: "jobs-postgres",
  summary: "submit → result in Redis mode beside add → run of queues on Postgres",
  async run({ print }) {
    const [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
    const stage = createStage();
    const peers: Peer[] = [];
    try {
      const uri = async () => (await createDatabase(postgres.uri())).uri;
      const env = storeSettings({ postgresUri: await uri(), redisUrl: redis.url });
      const server = await stage.keep(startServer({ env }));
      const pair = await stage.startPair(submitterOn(server), workerOn(server));
      peers.push(await graphileWorker(await uri()), await pgBoss(await uri()));
      const rounds: Record<string, number[]> = {};
      const note = (name: string, perSecond: number) => {
        rounds[name] = [...(rounds[name] ?? []), perSecond];
      };
      for (let round = 0; round <= ROUNDS; round++) {
        const load = { kind: "closed", atOnce: AT_ONCE, ms: ROUND_MS } as const;
        note("ours", (await pair.drive(load)).perSecond);
        for (const { name, submit } of peers) note(name, (await drive(load, submit)).perSecond);
      }
      const figure = (name: string) => median(rounds[name]!.slice(1)); // the first warms up
      print(
        renderTable(
          peers.map(({ name }) => rowOf(name, figure("ours"), figure(name))),
          "peer",
        ),
      );
    } finally {
      await Promise.all(peers.map((peer) => peer.stop()));
      await stage.stop();
      await Promise.all([redis.discard(), postgres.discard()]);
    }
  },
};

interface Peer {
  name: string;
  submit: SubmitJob;
  stop(): Promise<void>;
}

const rowOf = (name: string, ours: number, peer: number): Row => ({
  what: `${name}, ${AT_ONCE} at once`,
  ours: `${ours.toFixed(0)}/s`,
  beside: `${peer.toFixed(0)}/s`,
  ratio: `${(ours / peer).toFixed(1)} ×`,
  target: "",
});

/** Whoever waits for a job, by the number it carries. */
function createWaiting() {
  const waiting = new Map<number, (begun: Begun) => void>();
  let last = 0;
  return {
    send: (add: (nth: number) => Promise<unknown>): Promise<Begun> => {
      const nth = ++last;
      return new Promise((resolve, reject) => {
        waiting.set(nth, resolve);
        add(nth).catch(reject);
      });
    },
    ran(nth: number): void {
      waiting.get(nth)?.({ beganMs: wallMs() });
      waiting.delete(nth);
    },
  };
}

type Numbered = Timed & { nth: number };

async function graphileWorker(connectionString: string): Promise<Peer> {
  const { send, ran } = createWaiting();
  const runner: Runner = await run({
    connectionString,
    concurrency: AT_ONCE,
    maxPoolSize: 10,
    noHandleSignals: true,
    logger: new Logger(() => () => {}), // a line per job by default
    preset: { worker: { localQueue: { size: AT_ONCE } } },
    taskList: { [QUEUE]: (payload) => ran((payload as Numbered).nth) },
  });
  return {
    name: "graphile-worker",
    submit: (payload) => send((nth) => runner.addJob(QUEUE, { ...payload, nth })),
    stop: () => runner.stop(),
  };
}

async function pgBoss(connectionString: string): Promise<Peer> {
  const { send, ran } = createWaiting();
  const boss = new PgBoss({ connectionString, max: 10, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(`pg-boss: ${error.message}`));
  await boss.start();
  await boss.createQueue(QUEUE);
  const options = { batchSize: AT_ONCE, pollingIntervalSeconds: PG_BOSS_POLL_SECONDS };
  await boss.work<Numbered>(QUEUE, options, async (jobs) => {
    for (const { data } of jobs) ran(data.nth);
  });
  return {
    name: "pg-boss",
    submit: (payload) => send((nth) => boss.send(QUEUE, { ...payload, nth })),
    stop: () => boss.stop({ graceful: false }),
  };
}
