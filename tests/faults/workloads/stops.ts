import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, Session, Worker } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { repositoryRoot } from "@tenure/testing/repository";
import { until } from "@tenure/testing/until";
import { operationsOf } from "../checkers/operations.ts";
import { livesOf } from "../checkers/processes.ts";
import { livesOfPrograms } from "../checkers/programs.ts";
import { checkStops, type StopJobAsk, type StopJobEnd } from "../checkers/stops.ts";
import { historyOf, programsOf } from "../history-of.ts";
import { programSpec } from "../program-spec.ts";
import type { LoadContext, Scene, Workload } from "../workload.ts";
import { runCallers } from "./callers.ts";
import { nodeOf, unitParty } from "./processes.ts";

const POOL = "stops";
const WORKERS = 3;
// Far more slots than jobs: a job that fails had a free one.
const CAPACITY = 8;
const CALLERS = 8;
const UNITS = 2;
/** Two kinds of node-units, so that the reboot of a fleet does not wait for the slow child. */
const ROWS = [
  { on: "stop-unit", stopMs: 0 },
  { on: "stop-unit", stopMs: 0 },
  { on: "stop-unit", stopMs: 300 },
  { on: "slow-unit", stopMs: 0 },
  // Longer than two heartbeats, which come every 5 s; the others stop at once and must not wait for it.
  { on: "slow-unit", stopMs: 10_500 },
];
const STOP_GRACE_MS = 12_000;
const CLOSE_MS = 5_000;
const WAIT_MS = 15_000;

/** What stopping in good order may cost: nothing for jobs, little for deployments, and every program ends with 0. */
export const stops: Workload = {
  name: "stops",
  promises: "I11 for orderly stops",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: false,
  parties: [
    {
      role: "stop-worker",
      count: WORKERS,
      uses: ["hosts"],
      readyLine: /^worker/,
      start: (scene) => programSpec("worker", scene),
    },
    ...["stop-unit", "slow-unit"].map((role) =>
      unitParty(role, UNITS, {
        NODE_UNIT_STOP_GRACE_MS: String(STOP_GRACE_MS),
        NODE_UNIT_LABELS: `on=${role}`,
      }),
    ),
  ],
  programs: { worker: runWorker },
  async load(context) {
    const { scene, history, atStop } = context;
    await createRows(scene, context.quiet);
    const session = new Session({ url: scene.urls, token: FLEET_TOKEN });
    atStop(() => session.close());
    await runCallers(context, CALLERS, async (caller) => {
      const ask: StopJobAsk = { request_id: randomUUID(), via: caller.oneOf(["session", "http"]) };
      const end =
        ask.via === "session" ? bySession(session, ask) : byHttp(caller.oneOf(scene.urls), ask);
      await record(history, caller.name, ask, end).catch(() => caller.pause(50, 300));
      await caller.pause(5, 40);
    });
  },
  async settle({ scene, history, deadlineMs }) {
    for (const url of scene.urls) {
      const ask: StopJobAsk = { request_id: randomUUID(), via: "settle" };
      const ended = () => record(history, "settle", ask, byHttp(url, ask)).then(() => true);
      await until(ended, { deadlineMs, everyMs: 200, what: `a job at ${url}` });
    }
    const allRun = async () => {
      const missing = await rowsNotRunning(scene);
      if (missing.length > 0) throw new Error(`${missing.join(", ")} do not run`);
      return true;
    };
    await until(allRun, { deadlineMs, everyMs: 500, what: "every deployment to run" });
  },
  hazards: {
    jobs: [],
    stops_of_instances: ["instance.stop"],
    stops_of_workers: ["stop-worker.stop"],
    stops_of_units: ["stop-unit.stop", "slow-unit.stop"],
    restarts_together: ["fleet.stop", "machine.stop"],
    moves: ["stop-unit.stop", "slow-unit.stop"],
  },
  read: async (scene) => programsOf(scene),
  check: (events: RecordedEvent[], programs: RecordedEvent[]) =>
    checkStops(
      {
        jobs: operationsOf<StopJobAsk, StopJobEnd>(events, "job"),
        children: livesOf(events, nodeOf),
        programs: livesOfPrograms(programs),
      },
      {
        ...{ instance: "instance", worker: "stop-worker", units: ["stop-unit", "slow-unit"] },
        // The server's own limit; the grace of a child; what a client is given; and what a busy machine adds.
        stopMaxMs: { instance: 15_000, "slow-unit": STOP_GRACE_MS + 8_000, other: 10_000 },
        downMaxMs: 9_000,
      },
    ),
};

const record = (
  history: HistoryRecorder,
  process: string,
  ask: StopJobAsk,
  end: Promise<StopJobEnd>,
): Promise<StopJobEnd> => history.run({ process, f: "job", value: ask }, () => end);

async function bySession(session: Session, { request_id }: StopJobAsk): Promise<StopJobEnd> {
  try {
    const { job_id, outcome } = await session.submit({
      pool: POOL,
      requestId: request_id,
      payload: {},
    });
    return { job_id, outcome };
  } catch (error) {
    if (!(error instanceof JobFailed) || !error.result) throw error;
    const { job_id, outcome } = error.result;
    return { job_id, outcome, message: error.message };
  }
}

async function byHttp(url: string, { request_id }: StopJobAsk): Promise<StopJobEnd> {
  const { status, body } = await call(url, `/jobs?wait_ms=${WAIT_MS}`, {
    body: { request_id, pool: POOL, payload: {} },
    timeoutMs: WAIT_MS + 4_000,
  });
  if (status !== 200) throw new Error(body?.error?.code ?? `not ended: ${status}`);
  const { job_id, outcome, error } = body;
  return { job_id, outcome, message: error?.message };
}

async function runWorker({ scene, atStop }: LoadContext): Promise<void> {
  const name = `${scene.name}#${scene.start}`;
  const worker = new Worker({
    url: scene.urls,
    token: FLEET_TOKEN,
    pools: [POOL],
    capacity: CAPACITY,
    name,
    async run() {
      await wait(5 + Math.random() * 60);
      return {};
    },
  });
  atStop(() => worker.close({ withinMs: CLOSE_MS }));
  await until(() => worker.state === "ready", {
    deadlineMs: 60_000,
    what: "the worker to connect",
  });
  console.log(`worker ${name}`);
}

const nameOf = (index: number): string => `stop-${index}`;

async function createRows({ urls, directory }: Scene, quiet: AbortSignal): Promise<void> {
  const child = join(repositoryRoot, "tests/faults/children/child.js");
  for (const [index, { on, stopMs }] of ROWS.entries()) {
    const body = {
      name: nameOf(index),
      selector: { on },
      command: process.execPath,
      args: [child, directory, "stops", String(stopMs)],
    };
    const made = async () => {
      const { status, body: answer } = await call(urls[index % urls.length]!, "/deployments", {
        body,
      });
      if (status === 400) throw new Error(JSON.stringify(answer));
      return quiet.aborted || status === 201 || status === 409;
    };
    await until(made, { deadlineMs: 600_000, everyMs: 200, what: nameOf(index) });
  }
}

const BEAT_LATE_MS = 3_000;

async function rowsNotRunning(scene: Scene): Promise<string[]> {
  const { rows } = await withClient(scene.postgresUri, (client) =>
    client.query("select id::text, name from deployment where name like 'stop-%'"),
  );
  const nowNs = Number(process.hrtime.bigint());
  const alive = new Set(
    livesOf(historyOf(scene), nodeOf)
      .filter(({ lastNs }) => nowNs - lastNs < BEAT_LATE_MS * 1e6)
      .map(({ id }) => id),
  );
  return rows.filter(({ id }) => !alive.has(id)).map(({ name }) => name);
}
