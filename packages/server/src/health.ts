import { type DependencyHealth, isTenureError } from "@tenure/protocol";
import type { Clock } from "./kernel/clock.ts";
import { createSingleFlight } from "./kernel/single-flight.ts";

export interface Dependency {
  name: string;
  /** The kind of store, e.g. `embedded` or `redis-cluster`. */
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
 * Checks whether this instance can work now, by pinging every store it needs. Checks that come while one runs share its
 * result, so that many probes are one ping.
 */
export function createHealth(options: {
  dependencies: Dependency[];
  phase: () => Phase;
  clock: Clock;
  onAnswer: (name: string, ok: boolean) => void;
}): () => Promise<Health> {
  const share = createSingleFlight<Health>();

  async function check(): Promise<Health> {
    const dependencies = await Promise.all(
      options.dependencies.map((dependency) => checkOne(dependency, options.clock)),
    );
    for (const { name, ok } of dependencies) options.onAnswer(name, ok);
    return { status: statusOf(options.phase(), dependencies), dependencies };
  }

  return () => share("health", check);
}

function statusOf(phase: Phase, dependencies: DependencyHealth[]): Health["status"] {
  if (phase !== "running") return phase;
  return dependencies.every(({ ok }) => ok) ? "ready" : "not_ready";
}

async function checkOne({ name, kind, ping }: Dependency, clock: Clock): Promise<DependencyHealth> {
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
 * Shares the outcome of a write: at most one write in 5 s for any number of callers, and after a failure one in a second,
 * so that a store that is back is noticed soon. Callers wait for a running write.
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
    // When it fails there may be no caller left that waits for it.
    attempt.catch(() => {});
    outcome = attempt;
    return attempt;
  };
}
