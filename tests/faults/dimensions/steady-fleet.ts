import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { Session, Worker } from "@tenure/sdk";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { call } from "@tenure/testing/fleet/nonce-fleet";
import { createHistory, type HistoryRecorder, type RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { createViolations, groupBy, operationsOf } from "../checkers/operations.ts";
import type { Findings, LoadContext, Party, Scene } from "../workload.ts";
import { unitParty } from "../workloads/processes.ts";
import type { World } from "../world.ts";

// A fleet in which nothing moves by itself: two node-units with children that never end, one daemon, a worker and a
// client, and a few nonces a second. What a dimension does to it is then the only reason for a change.

export const POOL = "steady";
export const DAEMON = "steady-daemon";
export const DEPLOYMENTS = Array.from({ length: 8 }, (_, n) => `steady-${n}`);
export const SLEEPER = "exec sleep 100000";
const CALL_MS = 8_000;
const UNITS = 2;

/** Node-units whose names begin with the dimension's, so that several workloads may have some. */
export const steadyUnits = (
  prefix: string,
  { env = {}, count = UNITS }: { env?: Record<string, string>; count?: number } = {},
): Party =>
  unitParty(`${prefix}-unit`, count, {
    NODE_UNIT_SELF_STOP_MS: "30000",
    NODE_UNIT_STOP_GRACE_MS: "1000",
    ...env,
  });

/** Creates the deployments when all node-units are there; then jobs and nonces, one after another, until the load is over. */
export async function loadSteadily(
  { scene, history, quiet }: LoadContext,
  units = UNITS,
): Promise<void> {
  // Else the first takes everything, and nothing moves to the others by itself.
  const areThere = async () => {
    const { body } = await call(scene.urls[0]!, "/nodes?limit=500&online=true&node_unit=true");
    return quiet.aborted || body.items.length >= units;
  };
  await until(areThere, { deadlineMs: 120_000, everyMs: 100, what: "all node-units" });
  await createSteadyRows(scene, quiet);
  const worker = new Worker({
    url: scene.urls,
    token: FLEET_TOKEN,
    pools: [POOL],
    capacity: 8,
    run: async () => null,
  });
  const session = new Session({ url: scene.urls, token: FLEET_TOKEN });
  const each = async (work: (n: number) => Promise<void>) => {
    for (let n = 0; !quiet.aborted; n++) {
      await work(n).catch(() => {});
      await wait(150, undefined, { signal: quiet }).catch(() => {});
    }
  };
  await Promise.all([
    each(async (n) => {
      const value = { process: `${scene.name}/session`, f: "job", value: { n } };
      await history.run(value, async () => {
        const late = wait(20_000).then(() => Promise.reject(new Error("no result in 20 s")));
        const { job_id } = await Promise.race([
          session.submit({ pool: POOL, payload: { n } }),
          late,
        ]);
        return { job_id };
      });
    }),
    each(async (n) => {
      const url = scene.urls[n % scene.urls.length]!;
      await takeNumber(history, { url, signer: "steady", process: `${scene.name}/signer` });
    }),
  ]);
  session.close?.();
  await worker.close({ withinMs: 1_000 });
}

async function createSteadyRows({ urls }: Scene, quiet: AbortSignal): Promise<void> {
  const specs = [
    { name: DAEMON, type: "daemon" },
    ...DEPLOYMENTS.map((name) => ({ name, type: "deployment" })),
  ];
  for (const spec of specs) {
    const made = async () => {
      const answer = await call(urls[0]!, "/deployments", { body: { ...spec, command: SLEEPER } });
      return quiet.aborted || answer.status === 201 || answer.status === 409;
    };
    await until(made, { deadlineMs: 120_000, everyMs: 200, what: spec.name });
  }
}

/** Allocates one number and marks it used. Only the allocation is recorded. */
export async function takeNumber(
  history: HistoryRecorder,
  { url, signer, process }: { url: string; signer: string; process: string },
): Promise<number> {
  const request_id = randomUUID();
  const ask = { process, f: "allocate", value: { signer, request_id } };
  const { nonce, hold_id } = await history.run(ask, async () => {
    const body = { request_id };
    const answer = await call(url, `/signers/${signer}/nonces`, { body, timeoutMs: CALL_MS });
    if (answer.status !== 200) throw new Error(answer.body?.error?.code ?? answer.status);
    return { signer, nonce: answer.body.nonce as number, hold_id: answer.body.hold_id as string };
  });
  const body = { hold_id, tx_hash: `0x${hold_id.replaceAll("-", "")}` };
  await call(url, `/signers/${signer}/nonces/${nonce}/used`, { body, timeoutMs: CALL_MS });
  return nonce;
}

/** A child as its node reports it. Another one has another pid or another generation. */
export interface Child {
  name: string;
  address: string;
  generation: number;
  pid: number;
}

interface Listed {
  name: string;
  type: string;
  address: string;
  generation: number;
  status: { address: string; state: string; pid?: number; generation: number }[];
}

/** Everything that runs, by what the nodes said last. */
export async function childrenOf(url: string): Promise<Child[]> {
  const { body } = await call(url, "/deployments?limit=500");
  const rows: Listed[] = body.items;
  return rows
    .filter(({ name }) => name.startsWith("steady-"))
    .flatMap(({ name, type, address: owner, status }) =>
      status
        .filter(
          ({ state, address }) => state === "running" && (type === "daemon" || address === owner),
        )
        .map(({ address, generation, pid = 0 }) => ({ name, address, generation, pid })),
    )
    .sort((a, b) => keyOfChild(a).localeCompare(keyOfChild(b)));
}

export const keyOfChild = ({ name, address, generation, pid }: Child): string =>
  `${name} at ${address.slice(0, 6)} (generation ${generation}, pid ${pid})`;

/** What is not as it should be in peace, in one sentence each. Empty: everything works at every instance. */
export async function problemsIn(
  world: World,
  { prefix, history }: { prefix: string; history: HistoryRecorder },
): Promise<string[]> {
  const units = world.parties.filter(({ role }) => role === `${prefix}-unit`).length;
  const found = await Promise.all(
    urlsOf(world).map(async (url, index) => {
      const problems: string[] = [];
      const check = async (what: string, isWell: () => Promise<boolean | string>) => {
        const outcome = await isWell().catch((error: Error) => error.message);
        if (outcome !== true) problems.push(`instance ${index}: ${what}: ${outcome}`);
      };
      await check("/health/ready", async () => {
        const { status } = await fetch(`${url}/health/ready`, {
          signal: AbortSignal.timeout(CALL_MS),
        });
        return status === 200 || `answers ${status}`;
      });
      await check("the members view", async () => {
        const { status, body } = await call(url, "/membership", { timeoutMs: CALL_MS });
        return body.view === "ready" || `${status} ${JSON.stringify(body).slice(0, 100)}`;
      });
      await check("the node-units", async () => {
        // Absent ones too: a row that cannot be read may be theirs.
        const { status, body } = await call(url, "/nodes?limit=500&node_unit=true");
        if (status !== 200) return `GET /nodes answers ${status}`;
        const present = (body.items as { name: string; online: boolean }[]).filter(
          ({ name, online }) => online && name.startsWith(`${prefix}-unit-`),
        ).length;
        return present === units || `${present} of ${units} are online`;
      });
      await check("the deployments", async () => {
        const children = await childrenOf(url);
        const missing = DEPLOYMENTS.filter((row) => !children.some(({ name }) => name === row));
        const daemons = children.filter(({ name }) => name === DAEMON).length;
        if (missing.length > 0) return `${missing.join(", ")} run nowhere`;
        return daemons === units || `the daemon runs on ${daemons} of ${units}`;
      });
      await check("a job", async () => {
        const body = { request_id: randomUUID(), pool: POOL, payload: null };
        const answer = await call(url, "/jobs?wait_ms=5000", { body, timeoutMs: CALL_MS });
        return answer.body.outcome === "succeeded" || JSON.stringify(answer.body).slice(0, 200);
      });
      await check("a nonce", async () => {
        await takeNumber(history, { url, signer: "probe", process: `probe/${randomUUID()}` });
        return true;
      });
      return problems;
    }),
  );
  return found.flat();
}

export const urlsOf = (world: World): string[] =>
  world.instances.map(({ lines: { edge } }) => `http://${edge![0]!.host}:${edge![0]!.port}`);

/** Waits until nothing is wrong. What is still wrong then is returned, and recorded for the checker if `after` is given. */
export async function expectPeace(
  world: World,
  { prefix, history, after, deadlineMs = 40_000 }: Peace,
): Promise<string[]> {
  let problems: string[] = [];
  const isWell = async () => {
    problems = await problemsIn(world, { prefix, history });
    return problems.length === 0;
  };
  await until(isWell, { deadlineMs, everyMs: 250, what: "peace" }).catch(() => {});
  if (after !== undefined)
    for (const problem of problems) recordProblem(history, `${after}: ${problem}`);
  return problems;
}

export interface Peace {
  /** Of the names of the node-units. */
  prefix: string;
  history: HistoryRecorder;
  /** What was done before, for the checker's sentence. */
  after: string | undefined;
  deadlineMs?: number;
}

/** Kills the owner of a deployment; another node-unit must run it, and the killed one comes back. */
export async function failOver(
  world: World,
  { prefix, when }: { prefix: string; when: string },
): Promise<void> {
  const history = historyIn(world, prefix);
  const url = urlsOf(world)[0]!;
  const { body } = await call(url, "/nodes?limit=500&online=true&node_unit=true");
  const names = new Map(
    (body.items as { node_id: string; name: string }[]).map(({ node_id, name }) => [node_id, name]),
  );
  const owned = (await childrenOf(url)).find(({ name }) => name === DEPLOYMENTS[0]);
  const unit = world.parties.find(({ name }) => name === names.get(owned?.address ?? ""));
  if (!owned || !unit) return recordProblem(history, `${when}: ${DEPLOYMENTS[0]} has no owner`);
  await unit.kill();
  const isElsewhere = async () =>
    (await childrenOf(url)).some(
      ({ name, address }) => name === owned.name && address !== owned.address,
    );
  await until(isElsewhere, { deadlineMs: 60_000, everyMs: 100, what: "a fail-over" }).then(
    () => recordMet(history, "failovers"),
    () => recordProblem(history, `${when}: nothing replaced a killed node-unit within 60 s`),
  );
  await unit.start();
  await expectPeace(world, { prefix, history, after: `${when}, after a fail-over` });
}

export function recordProblem(history: HistoryRecorder, sentence: string): void {
  history.record({ process: "nemesis", type: "info", f: "problem", value: sentence });
}

export function recordMet(history: HistoryRecorder, hazard: string, count = 1): void {
  history.record({ process: "nemesis", type: "info", f: "met", value: { hazard, count } });
}

/** What the faults of a dimension saw and did: into the history of its workload, for the checker. */
export function historyIn(world: World, workload: string): HistoryRecorder {
  const key = `${world.directory} ${workload}`;
  const known = histories.get(key) ?? createHistory(`${world.directory}/${workload}.nemesis.jsonl`);
  histories.set(key, known);
  return known;
}

const histories = new Map<string, HistoryRecorder>();

/** No number of a signer in two hands, every recorded problem, and how often each hazard was met. */
export function checkSteady(events: RecordedEvent[], hazards: readonly string[]): Findings {
  const violations = createViolations();
  for (const { value } of events.filter(({ f }) => f === "problem")) violations.add(String(value));
  const allocations = operationsOf<unknown, Allocation>(events, "allocate").filter(
    ({ type }) => type === "ok",
  );
  const byNumber = groupBy(allocations, ({ answered: { signer, nonce } }) => `${signer} ${nonce}`);
  for (const [number, own] of byNumber)
    if (new Set(own.map(({ answered }) => answered.hold_id)).size > 1)
      violations.add(`number ${number} was handed out ${own.length} times`);
  const jobs = operationsOf(events, "job").filter(({ type }) => type === "ok").length;
  const reached: Record<string, number> = { jobs, numbers: allocations.length };
  for (const hazard of hazards) reached[hazard] = 0;
  for (const { value } of events.filter(({ f }) => f === "met")) {
    const { hazard, count } = value as { hazard: string; count: number };
    reached[hazard] = (reached[hazard] ?? 0) + count;
  }
  return { checked: allocations.length + jobs, violations: violations.all, reached };
}

export interface Allocation {
  signer: string;
  nonce: number;
  hold_id: string;
}
