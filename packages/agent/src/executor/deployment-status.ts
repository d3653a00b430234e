import type { DeploymentReport } from "@tenure/protocol";
import { storable } from "../logs/tail.ts";
import type { Exit } from "./child/launch.ts";
import type { Goal } from "./goal.ts";

/**
 * What is known of one deployment on this node, and its reports.
 *
 * Invariants: restarts and failures count the children of one generation and specification; `last` is the newest report;
 * every report has the newest `lost_after_ms`.
 */
export interface DeploymentStatus {
  readonly facts: Readonly<Facts>;
  readonly last: DeploymentReport | undefined;
  /** Forgets the facts if the goal is another child. */
  begin(goal: Goal): void;
  report(goal: Goal, state: DeploymentReport["state"], changes?: Partial<Reported>): void;
  /** Counts a failure and returns how many there were in a row. `isStable`: the child had run long enough to start over. */
  countFailure(isStable: boolean): number;
  /** Reports a failure and returns its text. */
  reportFailure(goal: Goal, failure: Failure): string;
  clearFailures(): void;
  /** Takes the goal's `lost_after_ms`. `isReported`: the server waits for this node to acknowledge a change of it. */
  setLostAfter(goal: Goal, isReported: boolean): void;
}

/** Null: unknown, or not any more. */
interface Reported {
  restarts: number;
  pid: number | null;
  exit_code: number | null;
  signal: string | null;
  last_error: string | null;
  started_at: string | null;
}

interface Facts extends Reported {
  goal: Goal;
  failures: number;
}

export interface Failure {
  state: "backoff" | "failed";
  reason: string;
  exit?: Exit;
  ranMs?: number;
}

export function createDeploymentStatus(
  first: Goal,
  send: (report: DeploymentReport) => void,
): DeploymentStatus {
  let facts = factsOf(first);
  let last: DeploymentReport | undefined;
  let lostAfterMs = first.lostAfterMs;

  function report(
    { deploymentId: deployment_id, generation, specHash: spec_hash }: Goal,
    state: DeploymentReport["state"],
    changes: Partial<Reported> = {},
  ): void {
    Object.assign(facts, changes);
    const { restarts, pid, exit_code, signal, last_error, started_at } = facts;
    const reported = { pid, restarts, exit_code, signal, last_error, spec_hash, started_at };
    last = { deployment_id, generation, state, ...reported, lost_after_ms: lostAfterMs };
    send(last);
  }

  return {
    get facts() {
      return facts;
    },
    get last() {
      return last;
    },
    begin(goal) {
      const isSameChild =
        goal.generation === facts.goal.generation && goal.specHash === facts.goal.specHash;
      if (!isSameChild) facts = factsOf(goal);
    },
    report,
    countFailure(isStable) {
      facts.failures = isStable ? 1 : facts.failures + 1;
      return facts.failures;
    },
    reportFailure(goal, { state, reason, exit }) {
      // The specified error for a daemon that should run on this node and does not.
      const code = goal.isDaemon && goal.kind === "run" ? "ERR_DAEMON_MISSING: " : "";
      const last_error = storable((code + reason).slice(0, ERROR_LENGTH_MAX));
      const ended = exit && { exit_code: exit.code, signal: exit.signal };
      report(goal, state, { pid: null, last_error, ...ended });
      return last_error;
    },
    clearFailures() {
      facts.failures = 0;
    },
    setLostAfter(goal, isReported) {
      const isChanged = goal.lostAfterMs !== lostAfterMs;
      lostAfterMs = goal.lostAfterMs;
      if (!isReported || !isChanged || last?.generation !== goal.generation) return;
      last = { ...last, lost_after_ms: lostAfterMs };
      send(last);
    },
  };
}

const factsOf = (goal: Goal): Facts => ({
  goal,
  failures: 0,
  restarts: 0,
  pid: null,
  exit_code: null,
  signal: null,
  last_error: null,
  started_at: null,
});

/** The limit of a report. Cut before `storable`, because a cut may leave half a character. */
const ERROR_LENGTH_MAX = 4_096;
