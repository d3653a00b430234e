import { type DependencyHealth, isTenureError } from "@tenure/protocol";
import type { Clock } from "./kernel/clock.ts";

export interface Dependency {
  name: string;
  /** What answers, e.g. `embedded` or `redis-cluster`. */
  kind: string;
  ping(): Promise<unknown>;
}

export interface Health {
  status: "ready" | "starting" | "stopping" | "not_ready";
  dependencies: DependencyHealth[];
}

export type Phase = "starting" | "running" | "stopping";

const PING_LIMIT_MS = 2_000;

/**
 * Whether this instance can do its work now, by asking every store it needs. Questions that come while one
 * is under way share its answer, so that a crowd of probes is one ping.
 */
export function createHealth(options: {
  dependencies: Dependency[];
  phase: () => Phase;
  clock: Clock;
  onAnswer: (name: string, ok: boolean) => void;
}): () => Promise<Health> {
  let underWay: Promise<Health> | undefined;

  async function ask(): Promise<Health> {
    const dependencies = await Promise.all(
      options.dependencies.map((dependency) => askOne(dependency, options.clock)),
    );
    for (const { name, ok } of dependencies) options.onAnswer(name, ok);
    return { status: statusOf(options.phase(), dependencies), dependencies };
  }

  return () => {
    underWay ??= ask().finally(() => {
      underWay = undefined;
    });
    return underWay;
  };
}

function statusOf(phase: Phase, dependencies: DependencyHealth[]): Health["status"] {
  if (phase !== "running") return phase;
  return dependencies.every(({ ok }) => ok) ? "ready" : "not_ready";
}

async function askOne({ name, kind, ping }: Dependency, clock: Clock): Promise<DependencyHealth> {
  const answered = new AbortController();
  const limit = clock.sleep(PING_LIMIT_MS, answered.signal).then(() => {
    throw new Error(`no answer within ${PING_LIMIT_MS} ms`);
  });
  try {
    await Promise.race([ping(), limit]);
    return { name, kind, ok: true };
  } catch (error) {
    return { name, kind, ok: false, reason: reasonOf(error) };
  } finally {
    limit.catch(() => {});
    answered.abort();
  }
}

function reasonOf(error: unknown): string {
  if (isTenureError(error, "DEPENDENCY_DOWN")) return error.details.reason ?? error.message;
  return error instanceof Error ? error.message : String(error);
}

const WRITE_KEPT_MS = 5_000;
const FAILURE_KEPT_MS = 1_000;

/**
 * A write whose outcome is shared: at most one in 5 s however many ask, and after a failure one in a second, so that a
 * store that is back is noticed soon. One that is under way is waited for, never doubled.
 */
export function shareWrite(write: () => Promise<unknown>, clock: Clock): () => Promise<void> {
  let outcome: Promise<void> | undefined;
  let keptUntilMs = Number.POSITIVE_INFINITY;

  return () => {
    if (outcome && clock.monotonicMs() < keptUntilMs) return outcome;
    keptUntilMs = Number.POSITIVE_INFINITY;
    const keepFor = (ms: number) => {
      keptUntilMs = clock.monotonicMs() + ms;
    };
    const attempt = write().then(
      () => keepFor(WRITE_KEPT_MS),
      (error) => {
        keepFor(FAILURE_KEPT_MS);
        throw error;
      },
    );
    // Nothing may be waiting for it any more when it fails.
    attempt.catch(() => {});
    outcome = attempt;
    return attempt;
  };
}
