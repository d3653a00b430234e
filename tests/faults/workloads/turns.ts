import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { JobFailed, type JobResult, Session, type Turn, Worker } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { operationsOf } from "../checkers/operations.ts";
import { checkTurns, type TurnAnswer, type TurnAsk } from "../checkers/turns.ts";
import { programSpec } from "../program-spec.ts";
import type { LoadContext, Workload } from "../workload.ts";
import { runCallers } from "./callers.ts";

const POOL = "turns";
const SPEAKERS = 3;
// Enough that a turn's node always has a slot: then only the loss of the node can move a turn.
const CAPACITY = 50;
const RESULT_MS = 60_000;
const PEACEFUL_TURNS = 12;
const QUICK_MS = 4_000;
const WORKERS = 3;

/** I8: speakers whose jobs belong together, on workers that come and go; and once more in peace. */
export const turns: Workload = {
  name: "turns",
  promises: "I8",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: false,
  parties: [
    {
      role: "turn-worker",
      count: WORKERS,
      uses: ["hosts"],
      readyLine: /^worker/,
      start: (scene) => programSpec("worker", scene),
    },
  ],
  programs: { worker: runWorker },
  async load(context) {
    const { scene, history } = context;
    const sessions = new Map<string, Session>();
    await runCallers(context, SPEAKERS, async (caller) => {
      const session =
        sessions.get(caller.name) ?? new Session({ url: scene.urls, token: FLEET_TOKEN });
      sessions.set(caller.name, session);
      await speak({ history, session, name: caller.name, inPeace: false });
      await caller.pause(10, 200);
    });
  },
  async settle({ scene, history, deadlineMs }) {
    const session = new Session({ url: scene.urls, token: FLEET_TOKEN });
    // Everybody must be back, or the first turns would find their node before the others are known.
    await until(async () => (await workersOnline(scene.urls[0]!)) >= WORKERS, {
      deadlineMs,
      everyMs: 200,
      what: `${WORKERS} workers`,
    });
    // A slow one is no peaceful one (see the checker): then another.
    const lateMs = performance.now() + deadlineMs;
    for (let quick = 0; quick < PEACEFUL_TURNS && performance.now() < lateMs; ) {
      const startedMs = performance.now();
      await speak({ history, session, name: "settle", inPeace: true });
      if (performance.now() - startedMs < QUICK_MS) quick += 1;
    }
    await session.close();
  },
  hazards: {
    turns: [],
    turns_in_peace: [],
    turns_that_had_to_move: ["turn-worker.kill"],
  },
  read: async () => ({}),
  check: (events: RecordedEvent[]) => checkTurns(operationsOf<TurnAsk, TurnAnswer>(events, "turn")),
};

async function workersOnline(url: string): Promise<number> {
  const response = await fetch(`${url}/api/v1/nodes?limit=500`, {
    headers: { authorization: `Bearer ${FLEET_TOKEN}` },
  });
  const { items } = (await response.json()) as { items: { online: boolean; pools: string[] }[] };
  return items.filter(({ online, pools }) => online && pools.includes(POOL)).length;
}

/** One turn: some jobs one after another, some together, and its end by the last job or by a word. */
async function speak({
  history,
  session,
  name,
  inPeace,
}: {
  history: HistoryRecorder;
  session: Session;
  name: string;
  inPeace: boolean;
}): Promise<void> {
  const turn = session.turn();
  const label = randomUUID();
  const say = (place: number, options: Parameters<Turn["submit"]>[0]) => {
    const ask: TurnAsk = { turn: label, place, in_peace: inPeace };
    const value = { process: `${name}/${label}/${place}`, f: "turn", value: ask };
    return history.run(value, () => endOf(turn.submit(options))).catch(() => {});
  };
  const job = { pool: POOL, payload: { turn: label } };
  await say(0, job);
  await Promise.all([say(1, job), say(2, job)]);
  if (Math.random() < 0.5) await say(3, { ...job, finalize: "manual" });
  else await Promise.race([turn.finalize("manual").catch(() => {}), wait(RESULT_MS)]);
}

async function endOf(job: Promise<JobResult>): Promise<TurnAnswer> {
  const late = wait(RESULT_MS).then(() => Promise.reject(new Error("no result in a minute")));
  try {
    const { turn_id, node_id, outcome } = await Promise.race([job, late]);
    return { turn_id, node_id, outcome };
  } catch (error) {
    if (!(error instanceof JobFailed) || !error.result) throw error;
    const { turn_id, node_id, outcome } = error.result;
    return { turn_id, node_id, outcome };
  }
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
  atStop(() => worker.close());
  console.log(`worker ${name}`);
}
