import { setTimeout as wait } from "node:timers/promises";

/** What both systems are asked to do: a job that carries when it was sent, and is answered with when it began. */
export interface Timed {
  sentMs: number;
  filling: string;
}
export interface Begun {
  beganMs: number;
}

/** The queue, stream or pool of every system. */
export const POOL = "bench";

/** What a worker does with a job. */
export type Run = (payload: Timed) => Promise<Begun>;
export type SubmitJob = (payload: Timed) => Promise<Begun>;

export type Load =
  /** So many at a time, the next as soon as one has ended. */
  | { kind: "closed"; atOnce: number; ms: number }
  /** So many jobs, as fast as `atOnce` and the pause after each let them, for runs that are not measured by time. */
  | { kind: "count"; atOnce: number; jobs: number; pauseMs?: number }
  /** At a rate, whatever the answers do: what waits is not hidden by what was not sent. */
  | { kind: "open"; perSecond: number; ms: number };

export interface LoadFigures {
  jobs: number;
  perSecond: number;
  /** From the submission to the first line of the worker's function. */
  dispatch: Spread;
  /** From the submission to the result in the submitter's hands. */
  roundTrip: Spread;
}
export interface Spread {
  p50Ms: number;
  p99Ms: number;
}

export const FILLING = "x".repeat(200);

/** The machine's clock with fractions: the same for all processes of the machine. */
export const wallMs = (): number => performance.timeOrigin + performance.now();

export async function drive(load: Load, submit: SubmitJob): Promise<LoadFigures> {
  const dispatchMs: number[] = [];
  const roundTripMs: number[] = [];
  const startedMs = wallMs();

  async function one(): Promise<void> {
    const sentMs = wallMs();
    const { beganMs } = await submit({ sentMs, filling: FILLING });
    dispatchMs.push(beganMs - sentMs);
    roundTripMs.push(wallMs() - sentMs);
  }

  if (load.kind === "open") await atRate(load, one);
  else await byCallers(load, one);
  const jobs = roundTripMs.length;
  const perSecond = (jobs / (wallMs() - startedMs)) * 1_000;
  return { jobs, perSecond, dispatch: spreadOf(dispatchMs), roundTrip: spreadOf(roundTripMs) };
}

async function byCallers(
  load: Extract<Load, { kind: "closed" | "count" }>,
  one: () => Promise<void>,
): Promise<void> {
  const endMs = load.kind === "closed" ? wallMs() + load.ms : Number.POSITIVE_INFINITY;
  const pauseMs = load.kind === "count" ? (load.pauseMs ?? 0) : 0;
  let left = load.kind === "count" ? load.jobs : Number.POSITIVE_INFINITY;
  const caller = async () => {
    while (left-- > 0 && wallMs() < endMs) {
      await one();
      if (pauseMs > 0) await wait(pauseMs);
    }
  };
  await Promise.all(Array.from({ length: load.atOnce }, caller));
}

/** By the clock, not by pauses: what a late timer missed is sent at once. */
async function atRate(
  { perSecond, ms }: Extract<Load, { kind: "open" }>,
  one: () => Promise<void>,
): Promise<void> {
  const startedMs = wallMs();
  const jobs: Promise<void>[] = [];
  while (wallMs() - startedMs < ms) {
    const due = ((wallMs() - startedMs) / 1_000) * perSecond;
    while (jobs.length < due) jobs.push(one());
    await wait(Math.max(1, Math.min(20, 1_000 / perSecond)));
  }
  await Promise.all(jobs);
}

function spreadOf(values: number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}

/** Results by id, where one listener gets all of them: a result may arrive before its submitter waits for it. */
export function createAwaited<Id>() {
  const waiting = new Map<Id, (begun: Begun) => void>();
  const early = new Map<Id, Begun>();
  return {
    arrived(id: Id, begun: Begun): void {
      const resolve = waiting.get(id);
      if (!resolve) return void early.set(id, begun);
      waiting.delete(id);
      resolve(begun);
    },
    result(id: Id): Promise<Begun> {
      const begun = early.get(id);
      early.delete(id);
      return begun ? Promise.resolve(begun) : new Promise((resolve) => waiting.set(id, resolve));
    },
  };
}
