import type { DeploymentReport } from "@tenure/protocol";
import type { LogWriter } from "../logs/log-writer.ts";
import { aborted, unlessAborted } from "./abort.ts";
import { type AttemptHost, createAttempts, startTimer } from "./attempts.ts";
import { type Backoff, backoffMs } from "./backoff.ts";
import type { RunningChild } from "./contract.ts";
import { createDeploymentStatus, type Failure } from "./deployment-status.ts";
import type { Goal } from "./goal.ts";

/**
 * Brings one deployment to its goal and keeps it there.
 *
 * Invariant: one line of execution per deployment. It fulfils the present goal, and when the goal changes it first ends what
 * it does, including its child; so there is never a second child.
 */
export interface Runner {
  readonly goal: Goal;
  setGoal(goal: Goal): void;
  /** Stops the child, if there is one, and starts it again at once. */
  restart(): void;
  /** The newest report, if there is one. */
  lastReport(): DeploymentReport | undefined;
  running(): RunningChild | undefined;
}

export interface RunnerHost extends AttemptHost {
  random: () => number;
  backoff: Backoff;
  report(report: DeploymentReport): void;
}

export function createRunner(
  first: Goal,
  { writer, onGone }: { writer: LogWriter; onGone: () => void },
  host: RunnerHost,
): Runner {
  const status = createDeploymentStatus(first, host.report);
  const attempts = createAttempts(status, writer, host);
  let goal = first;
  let changed = new AbortController();

  async function fulfilGoals(): Promise<void> {
    for (;;) {
      changed = new AbortController();
      const present = goal;
      status.begin(present);
      await fulfil(present, changed.signal);
      // Another goal may have been set while this one ended.
      if (goal.kind === "gone" && goal === present) return onGone();
    }
  }

  async function fulfil(present: Goal, signal: AbortSignal): Promise<void> {
    switch (present.kind) {
      case "run":
        return retry(present, signal, () => attempts.run(present, present.spec, signal));
      case "prepare":
        return retry(present, signal, () => attempts.prepare(present, present.spec, signal));
      case "refused":
        status.report(present, "refused", { pid: null, last_error: present.reason });
        return aborted(signal);
      case "hold":
        status.report(present, "stopped", { pid: null, last_error: present.reason });
        return aborted(signal);
      case "gone":
        return reportGone(present);
    }
  }

  function reportGone(present: Goal): void {
    if (!status.last || ["stopped", "refused"].includes(status.last.state)) return;
    // "stopped" would mean that it is installed and its owner may stop it.
    if (status.facts.goal.kind === "prepare") {
      const last_error = "not installed: the deployment no longer belongs on this node";
      status.report(present, "failed", { pid: null, last_error });
    } else status.report(present, "stopped", { pid: null });
  }

  /** Repeats an attempt with back-off until the goal changes. */
  async function retry(
    present: Goal,
    signal: AbortSignal,
    attempt: () => Promise<Failure>,
  ): Promise<void> {
    while (!signal.aborted) {
      const failure = await attempt().catch(
        (error: Error): Failure => ({ state: "failed", reason: error.message }),
      );
      if (signal.aborted) return;
      const failures = status.countFailure((failure.ranMs ?? 0) >= host.backoff.stableMs);
      const waitMs = backoffMs({ failures, random: host.random() }, host.backoff);
      reportFailure(present, failure, waitMs);
      const timer = startTimer(waitMs, host.clock);
      await unlessAborted(timer.over, signal);
      timer.cancel();
    }
  }

  function reportFailure(present: Goal, failure: Failure, waitMs: number): void {
    const reason = status.reportFailure(present, failure);
    host.log({
      level: "warn",
      event: failure.exit ? "child.exited" : "child.not-started",
      message: failure.exit
        ? "child exited; will restart it"
        : "could not start a child; will retry",
      details: {
        deployment_id: present.deploymentId,
        reason,
        retry_in_ms: Math.round(waitMs),
      },
    });
  }

  void fulfilGoals();
  return {
    get goal() {
      return goal;
    },
    setGoal(next) {
      status.setLostAfter(next, next.key === goal.key);
      if (next.key === goal.key) return;
      goal = next;
      changed.abort(new Error("the goal changed"));
    },
    restart() {
      status.clearFailures();
      changed.abort(new Error("a restart was requested"));
    },
    lastReport: () => status.last,
    running: attempts.running,
  };
}
