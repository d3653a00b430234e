import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation, type Violations } from "./operations.ts";
import type { Life } from "./processes.ts";
import type { ProgramLife } from "./programs.ts";

export interface StopJobAsk {
  request_id: string;
  via: string;
}

export interface StopJobEnd {
  job_id: string;
  outcome: string;
  /** Of a job that failed. */
  message?: string | undefined;
}

export interface StopHistory {
  jobs: readonly Operation<StopJobAsk, StopJobEnd>[];
  /** Processes of deployments. */
  children: readonly Life[];
  programs: readonly ProgramLife[];
}

export interface StopRules {
  instance: string;
  worker: string;
  /** Roles of node-units. A deployment runs on those of one role. */
  units: readonly string[];
  /** How long an orderly stop may take, by role; the others may take `stopMaxMs.other`. */
  stopMaxMs: Readonly<Record<string, number>> & { other: number };
  /** How long a deployment may be down while an instance is ready and a node-unit that may run it is started. */
  downMaxMs: number;
}

/** Orderly stops cost little: every stop ends with 0 in time, no job fails, no deployment is down for long. */
export function checkStops(
  { jobs, children, programs }: StopHistory,
  rules: StopRules,
): Findings & { longestDownMs: number } {
  const violations = createViolations();
  const stopped = programs.filter(({ wasAsked }) => wasAsked);
  for (const life of stopped) checkExit(life, rules, violations);
  const of = (role: string) => programs.filter((life) => life.role === role);
  const workers = of(rules.worker).map(({ readyNs, endedNs }) => span(readyNs, endedNs));
  const excused = jobs.filter((job) => !checkJob(job, workers, violations)).length;
  const instances = of(rules.instance).map(({ readyNs, endedNs }) => span(readyNs, endedNs));
  const startedOf = (role: string) =>
    of(role).map(({ spawnedNs, endedNs }) => span(spawnedNs, endedNs));
  const downs = downsOf(children).map(({ id, role, fromNs, toNs }) => ({
    id,
    ms: coveredNs(span(fromNs, toNs), instances, startedOf(role)) / 1e6,
  }));
  for (const { id, ms } of downs)
    if (ms > rules.downMaxMs)
      violations.add(
        `${id} was down for ${Math.round(ms)} ms although an instance was ready and a node-unit was started, ${rules.downMaxMs} are allowed`,
      );
  const stopsOf = (...roles: string[]) => stopped.filter(({ role }) => roles.includes(role)).length;
  return {
    checked: jobs.length + children.length + stopped.length,
    violations: violations.all,
    longestDownMs: Math.max(0, ...downs.map(({ ms }) => ms)),
    reached: {
      jobs: jobs.filter(({ type }) => type === "ok").length - excused,
      stops_of_instances: stopsOf(rules.instance),
      stops_of_workers: stopsOf(rules.worker),
      stops_of_units: stopsOf(...rules.units),
      restarts_together: togethersIn(stopped, rules),
      moves: movesIn(children),
    },
  };
}

function checkExit(life: ProgramLife, { stopMaxMs }: StopRules, violations: Violations): void {
  const { name, start, role, stop } = life;
  const maxMs = stopMaxMs[role] ?? stopMaxMs.other;
  if (!stop) violations.add(`${name} did not end after SIGTERM (start ${start})`);
  else if (stop.code !== 0)
    violations.add(
      `${name} ended with ${stop.code ?? stop.signal} after SIGTERM, in ${Math.round(stop.tookMs)} ms (start ${start})`,
    );
  else if (stop.tookMs > maxMs)
    violations.add(
      `${name} took ${Math.round(stop.tookMs)} ms to end after SIGTERM, ${maxMs} are allowed (start ${start})`,
    );
}

/** False for a job that nothing is said about: there was a moment without any worker. */
function checkJob(
  { asked, answered, type, startNs, endNs }: Operation<StopJobAsk, StopJobEnd>,
  workers: readonly Span[],
  violations: Violations,
): boolean {
  if (type !== "ok" || answered.outcome === "succeeded") return true;
  const life = span(startNs, endNs);
  if (coveredNs(life, workers) < life.toNs - life.fromNs) return false;
  violations.add(
    `job ${answered.job_id} by ${asked.via} ended as ${answered.outcome} although workers were free: ${answered.message ?? "no message"}`,
  );
  return true;
}

interface Span {
  fromNs: number;
  toNs: number;
}

const span = (fromNs: number, toNs: number): Span => ({ fromNs, toNs });

/** How long, within `whole`, at least one of each list was there. */
function coveredNs(whole: Span, ...lists: (readonly Span[])[]): number {
  const points = [whole, ...lists.flat()]
    .flatMap(({ fromNs, toNs }) => [fromNs, toNs])
    .filter((at) => at >= whole.fromNs && at <= whole.toNs)
    .sort((a, b) => a - b);
  let sum = 0;
  for (const [index, toNs] of points.entries()) {
    const fromNs = points[index - 1];
    if (fromNs === undefined) continue;
    const isThere = ({ fromNs: from, toNs: to }: Span) => from <= fromNs && to >= toNs;
    if (lists.every((list) => list.some(isThere))) sum += toNs - fromNs;
  }
  return sum;
}

/** Between the last sign of one process of a deployment and the first of the next. */
function downsOf(children: readonly Life[]): (Span & { id: string; role: string })[] {
  return [...groupBy(children, ({ id }) => id)].flatMap(([id, own]) => {
    const inOrder = [...own].sort((a, b) => a.startNs - b.startNs);
    let upToNs = inOrder[0]!.lastNs;
    return inOrder.slice(1).flatMap(({ startNs, lastNs, node }) => {
      const role = node.replace(/-\d+$/, "");
      const down = { id, role, fromNs: upToNs, toNs: startNs };
      upToNs = Math.max(upToNs, lastNs);
      return down.toNs > down.fromNs ? [down] : [];
    });
  });
}

/** Stops of a node-unit while an instance was stopping too: what a reboot of a machine does. */
function togethersIn(stopped: readonly ProgramLife[], { instance, units }: StopRules): number {
  const near = (a: ProgramLife, b: ProgramLife) => Math.abs(a.endedNs - b.endedNs) < 500e6;
  const instances = stopped.filter(({ role }) => role === instance);
  return stopped
    .filter(({ role }) => units.includes(role))
    .filter((each) => instances.some((other) => near(each, other))).length;
}

const movesIn = (children: readonly Life[]): number =>
  [...groupBy(children, ({ id }) => id).values()].reduce(
    (sum, own) => sum + new Set(own.map(({ generation }) => generation)).size - 1,
    0,
  );
