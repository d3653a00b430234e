import assert from "node:assert";
import type { TurnView } from "@tenure/protocol";
import type { JobHandle, Session } from "@tenure/sdk";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { createSeeded } from "@tenure/testing/seeded";
import { until } from "@tenure/testing/until";
import { HOT_KINDS, type HotKind } from "./fleet.ts";
import {
  type Answer,
  createJobScene,
  type JobScene,
  PATIENT,
  POOL,
  readJob,
} from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const WORKERS = 8;
/**
 * Enough that every turn finds its slot at once, also when all speak at the same time and many of them to one node: then
 * nothing but the rule decides where a job goes.
 */
const CAPACITY = 2_000;
const TURNS_PER_SESSION = 3;
const WORK_MS = 5;

/** I8, as speakers see it. */
export const turns: Proof = {
  name: "turns",
  summary:
    "many speakers at two instances, their jobs in bursts: each turn on one node, turns spread over all",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

interface Said {
  session: number;
  turn: number;
  turnId: string | undefined;
  nodeId: string | undefined;
  jobId: string;
}

async function runOn(hot: HotKind, { size, seed, print }: ProofRun): Promise<void> {
  const [sessions, jobs] = size === "full" ? [200, 20] : [12, 8];
  // A machine that is busy with all of them at once may take its time; that is no reason to try another node.
  const scene = await createJobScene(hot, { env: PATIENT });
  const proxies: FaultProxy[] = [];
  try {
    const urls = [(await scene.startInstance()).url, (await scene.startInstance()).url];
    for (const url of urls)
      proxies.push(await startProxy({ targetPort: Number(new URL(url).port) }));
    const workers: RunningProcess[] = [];
    for (let n = 0; n < WORKERS; n++) workers.push(await startWorker(scene, urls, n));
    const ways = proxies.map(({ port }) => `http://127.0.0.1:${port}`);
    const seeded = createSeeded(seed);
    const speakers = Array.from({ length: sessions }, (_, n) => ({
      number: n,
      session: scene.openSession({
        url: [ways[n % 2]!, ways[(n + 1) % 2]!],
        patienceMs: 300_000,
        backoff: { baseMs: 10, capMs: 200 },
      }),
      bursts: Array.from({ length: TURNS_PER_SESSION }, () => burstsOf(jobs, seeded.between)),
    }));
    const speaking = Promise.all(
      speakers.map(({ number, session, bursts }) => speak(number, session, bursts)),
    );
    // Once in the middle everybody has to connect again, and half of them come back at the other instance.
    setTimeout(() => {
      for (const proxy of proxies) proxy.reset();
    }, 300);
    const said = (await speaking).flat();
    await judge({ hot, url: urls[0]!, said, sessions, jobs, print });
    await leaveMidTurn({ scene, urls, workers, rounds: size === "full" ? 50 : 5, print });
    await scene.untilAllSlotsAreFree();
  } finally {
    for (const proxy of proxies) proxy.stop();
    await scene.stop();
  }
}

const startWorker = (scene: JobScene, urls: string[], n: number) =>
  scene.startWorker({ url: [urls[n % 2]!, urls[(n + 1) % 2]!], capacity: CAPACITY });

/**
 * The turn's node leaves: the next job goes elsewhere at once, and the turn keeps the name of its node until it ends.
 * How long that job took is told beside an ordinary one of the same moment.
 */
async function leaveMidTurn({
  scene,
  urls,
  workers,
  rounds,
  print,
}: {
  scene: JobScene;
  urls: string[];
  workers: RunningProcess[];
  rounds: number;
  print: (line: string) => void;
}): Promise<void> {
  const session = scene.openSession({ url: urls[0]!, patienceMs: 300_000 });
  const tookMs: { ordinary: number[]; moved: number[] } = { ordinary: [], moved: [] };
  const job = { pool: POOL, payload: { say: "leave", work_ms: WORK_MS } };
  const timed = async (times: number[], submit: () => JobHandle<Answer>) => {
    const startedMs = performance.now();
    const result = await submit();
    times.push(performance.now() - startedMs);
    return result;
  };
  for (let round = 0; round < rounds; round++) {
    const turn = session.turn();
    const first = await turn.submit<Answer>(job);
    const at = workers.findIndex(({ pid }) => pid === first.body.pid);
    await workers[at]!.kill9();
    await untilOffline(urls, first.node_id!);
    const ordinary = () => timed(tookMs.ordinary, () => session.submit<Answer>(job));
    const moved = () => timed(tookMs.moved, () => turn.submit<Answer>(job));
    // One after the other, and neither always first.
    if (round % 2 === 1) await ordinary();
    const next = await moved();
    if (round % 2 === 0) await ordinary();
    const { affinity } = await readJob(urls[0]!, next.job_id);
    assert.deepEqual([next.turn_id, affinity], [first.turn_id, "offline"]);
    assert.notEqual(next.node_id, first.node_id);
    assert.equal(await affinityOf(urls[1]!, first.turn_id!), first.node_id, "written back");
    await turn.finalize("manual");
    assert.equal(await affinityOf(urls[1]!, first.turn_id!), null, "it outlived its turn");
    workers[at] = await startWorker(scene, urls, round);
  }
  const [ordinaryMs, movedMs] = [median(tookMs.ordinary), median(tookMs.moved)];
  print(
    `${scene.hot}: the node of the turn left ${rounds} times: the next job took ${movedMs.toFixed(1)} ms (p50), an ordinary ` +
      `one ${ordinaryMs.toFixed(1)} ms: ${(movedMs - ordinaryMs).toFixed(1)} ms more; nothing was written back`,
  );
}

async function untilOffline(urls: string[], nodeId: string): Promise<void> {
  const isOffline = async (url: string) => {
    const response = await fetch(`${url}/api/v1/nodes/${nodeId}`);
    return !response.ok || !((await response.json()) as { online: boolean }).online;
  };
  const all = async () => (await Promise.all(urls.map(isOffline))).every(Boolean);
  await until(all, { deadlineMs: 120_000, what: "a node that has left" });
}

async function affinityOf(url: string, turnId: string): Promise<string | null> {
  const response = await fetch(`${url}/api/v1/turns/${turnId}`);
  return ((await response.json()) as TurnView).affinity_node_id;
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** How many jobs are said in one breath: at least the first two in the same instant. */
function burstsOf(jobs: number, between: (least: number, most: number) => number): number[] {
  const bursts = [2];
  for (let left = jobs - 2; left > 0; ) {
    const burst = Math.min(left, Math.floor(between(1, 6)));
    bursts.push(burst);
    left -= burst;
  }
  return bursts;
}

async function speak(number: number, session: Session, turnsSaid: number[][]): Promise<Said[]> {
  const said: Said[] = [];
  for (const [turn, bursts] of turnsSaid.entries()) {
    const current = session.turn();
    const open: Promise<void>[] = [];
    for (const burst of bursts) {
      for (let n = 0; n < burst; n++)
        open.push(
          current
            .submit({ pool: POOL, payload: { say: `${number}.${turn}`, work_ms: WORK_MS } })
            .then(({ turn_id, node_id, job_id }) => {
              said.push({ session: number, turn, turnId: turn_id, nodeId: node_id, jobId: job_id });
            }),
        );
      await new Promise((resolve) => setImmediate(resolve));
    }
    await current.finalize("manual");
    await Promise.all(open);
  }
  return said;
}

async function judge({
  hot,
  url,
  said,
  sessions,
  jobs,
  print,
}: {
  hot: HotKind;
  url: string;
  said: readonly Said[];
  sessions: number;
  jobs: number;
  print: (line: string) => void;
}): Promise<void> {
  assert.equal(said.length, sessions * TURNS_PER_SESSION * jobs, "every job was answered");
  const byTurn = groupBy(said, ({ turnId }) => turnId ?? "");
  assert.equal(byTurn.size, sessions * TURNS_PER_SESSION, "as many turns as were spoken");
  const astray: Said[] = [];
  for (const [turnId, of] of byTurn) {
    assert.notEqual(turnId, "", "a job of a turn names it");
    const spoken = new Set(of.map(({ session, turn }) => `${session}.${turn}`));
    assert.equal(spoken.size, 1, `${turnId} has jobs of ${[...spoken].join(" and ")}`);
    const counts = groupBy(of, ({ nodeId }) => nodeId ?? "");
    const [home] = [...counts].sort((a, b) => b[1].length - a[1].length)[0]!;
    astray.push(...of.filter(({ nodeId }) => nodeId !== home));
  }
  // A job that went elsewhere tells why. Here nothing may be a reason: all nodes stay, and have slots for all.
  const reasons = new Map<string, number>();
  for (const { jobId } of astray) {
    const { affinity = "untold" } = await readJob(url, jobId);
    reasons.set(affinity, (reasons.get(affinity) ?? 0) + 1);
  }
  const after = said.length - byTurn.size;
  const homes = new Set([...byTurn.values()].map(([first]) => first?.nodeId));
  const repeats = consecutive(said);
  print(
    `${hot}: ${sessions} sessions, ${byTurn.size} turns, ${said.length} jobs: ${after - astray.length} of ${after} after the first on the turn's node`,
  );
  print(
    `${hot}: no two turns mixed; turns were on ${homes.size} of ${WORKERS} nodes; the next turn of a session was on the same node ${repeats.same} of ${repeats.pairs} times`,
  );
  assert.equal(astray.length, 0, `jobs went elsewhere: ${JSON.stringify([...reasons])}`);
  assert.equal(homes.size, WORKERS, "every node had turns");
  // By chance one in eight; a session that keeps its node would be all of them.
  assert(repeats.same <= repeats.pairs / 2, "a session kept its node from turn to turn");
}

function consecutive(said: readonly Said[]): { pairs: number; same: number } {
  const homes = new Map(said.map(({ session, turn, nodeId }) => [`${session}.${turn}`, nodeId]));
  let [pairs, same] = [0, 0];
  for (const [place, nodeId] of homes) {
    const [session, turn] = place.split(".").map(Number) as [number, number];
    const next = homes.get(`${session}.${turn + 1}`);
    if (next === undefined) continue;
    pairs += 1;
    if (next === nodeId) same += 1;
  }
  return { pairs, same };
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}
