import type { DeploymentReport } from "@tenure/protocol";
import type { Cancel, Clock } from "@tenure/sdk";
import type { Installed, Installer } from "../install/installer.ts";
import type { LogWriter } from "../logs/log-writer.ts";
import { storable } from "../logs/tail.ts";
import { aborted, unlessAborted } from "./abort.ts";
import { type Backoff, backoffMs } from "./backoff.ts";
import { type Child, type ChildHost, startChild } from "./child/child.ts";
import type { Exit } from "./child/launch.ts";
import type { RunningChild } from "./contract.ts";
import type { ChildSpec, Goal } from "./goal.ts";
import type { Slot, Slots } from "./slots.ts";

/** Brings one deployment to its goal and keeps it there. */
export interface Runner {
  readonly goal: Goal;
  pursue(goal: Goal): void;
  /** Stops the child, if there is one, and starts it again at once. */
  restart(): void;
  /** The newest report, if anything has been said. */
  lastReport(): DeploymentReport | undefined;
  running(): RunningChild | undefined;
}

export interface RunnerHost extends ChildHost {
  installer: Installer;
  slots: Slots;
  clock: Clock;
  random: () => number;
  backoff: Backoff;
  /** A child that is still there after so long counts as started. */
  startedAfterMs: number;
  report(report: DeploymentReport): void;
}

/**
 * One deployment is one line of execution: it fulfils the present goal, and when the goal changes it leaves what it
 * does, clean, before it looks at the next one. So there is never a second child, by construction.
 */
export function createRunner(
  first: Goal,
  { writer, onGone }: { writer: LogWriter; onGone: () => void },
  host: RunnerHost,
): Runner {
  let goal = first;
  let changed = new AbortController();
  let history = createHistory(first);
  let reported: DeploymentReport | undefined;
  let child: { of: Child; generation: number } | undefined;
  let lostAfterMs = first.lostAfterMs;

  function say(of: Goal, state: DeploymentReport["state"], facts: Facts = {}): void {
    Object.assign(history, facts);
    const { restarts, pid, exit_code, signal, last_error, started_at } = history;
    const { deploymentId: deployment_id, generation, specHash: spec_hash } = of;
    const report = { pid, restarts, exit_code, signal, last_error, spec_hash, started_at };
    reported = { deployment_id, generation, state, ...report, lost_after_ms: lostAfterMs };
    host.report(reported);
  }

  async function live(): Promise<void> {
    for (;;) {
      changed = new AbortController();
      const present = goal;
      if (!isSameChild(present, history.of)) history = createHistory(present);
      await fulfil(present, changed.signal);
      // DesiredDeployment again a moment after it was gone: then there is another goal by now.
      if (goal.kind === "gone" && goal === present) return onGone();
    }
  }

  async function fulfil(present: Goal, signal: AbortSignal): Promise<void> {
    switch (present.kind) {
      case "run":
        return repeat(present, signal, () => runOnce(present, present.spec, signal));
      case "prepare":
        return repeat(present, signal, () => prepare(present, present.spec, signal));
      case "refused":
        say(present, "refused", { pid: null, last_error: present.reason });
        return aborted(signal);
      case "hold":
        say(present, "stopped", { pid: null, last_error: present.reason });
        return aborted(signal);
      case "gone":
        // Said once: of one that was refused, or only prepared, there is nothing to add.
        if (!reported || ["stopped", "refused"].includes(reported.state)) return;
        // "stopped" would mean that it is installed and its owner may stop.
        if (history.of.kind === "prepare")
          say(present, "failed", {
            pid: null,
            last_error: "not installed: it is wanted here no more",
          });
        else say(present, "stopped", { pid: null });
    }
  }

  /** Does it again after every failure, later and later, until the goal changes. */
  async function repeat(
    present: Goal,
    signal: AbortSignal,
    attempt: () => Promise<Failure>,
  ): Promise<void> {
    while (!signal.aborted) {
      const failure = await attempt().catch(
        (error: Error): Failure => ({ state: "failed", reason: error.message }),
      );
      if (signal.aborted) return;
      if ((failure.ranMs ?? 0) >= host.backoff.stableMs) history.failures = 0;
      history.failures++;
      const waitMs = backoffMs({ failures: history.failures, random: host.random() }, host.backoff);
      tellFailure(present, failure, waitMs);
      await pause(waitMs, signal);
    }
  }

  function tellFailure(present: Goal, failure: Failure, waitMs: number): void {
    const { state, reason, exit } = failure;
    // The seed's word for a daemon that should run on this node and does not.
    const code = present.isDaemon && present.kind === "run" ? "ERR_DAEMON_MISSING: " : "";
    const last_error = storable((code + reason).slice(0, ERROR_LENGTH_MAX));
    say(present, state, {
      pid: null,
      last_error,
      ...(exit && { exit_code: exit.code, signal: exit.signal }),
    });
    host.log({
      level: "warn",
      event: exit ? "child.exited" : "child.not-started",
      message: exit
        ? "a child ended by itself and is started again"
        : "a child could not be started; it is tried again",
      details: {
        deployment_id: present.deploymentId,
        reason: last_error,
        retry_in_ms: Math.round(waitMs),
      },
    });
  }

  /** Resolves when the child has ended, by itself or because the goal changed. */
  async function runOnce(present: Goal, spec: ChildSpec, signal: AbortSignal): Promise<Failure> {
    const slot = await takeSlot(spec, signal);
    try {
      const installed = await install(present, spec, signal);
      slot.turnTo("start");
      const isAgain = history.started_at !== null;
      say(present, "starting", { pid: null, restarts: history.restarts + (isAgain ? 1 : 0) });
      const started = await startChild({ goal: present, spec, installed }, writer, host);
      child = { of: started, generation: present.generation };
      const beganMs = host.clock.monotonicMs();
      say(present, "starting", { pid: started.pid, started_at: new Date().toISOString() });
      try {
        await watch(present, started, { signal, onStarted: slot.giveBack });
      } finally {
        await started.end();
        child = undefined;
      }
      const exit = await started.exited;
      const ranMs = host.clock.monotonicMs() - beganMs;
      return { state: "backoff", reason: reasonOf(exit, started.lastWords()), exit, ranMs };
    } finally {
      slot.giveBack();
    }
  }

  async function watch(
    present: Goal,
    started: Child,
    { signal, onStarted }: { signal: AbortSignal; onStarted: () => void },
  ): Promise<void> {
    const early = await within(host.startedAfterMs, started.exited, signal);
    onStarted();
    if (!early && !signal.aborted) say(present, "running");
    await unlessAborted(started.exited, signal);
    if (signal.aborted) say(present, "stopping");
  }

  /** What `work` gives, if it does so in that time and before the signal. */
  async function within<T>(
    ms: number,
    work: Promise<T>,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    const late = startTimer(ms, host.clock);
    const first = await unlessAborted(Promise.race([work, late.over]), signal);
    late.cancel();
    return first;
  }

  async function pause(ms: number, signal: AbortSignal): Promise<void> {
    const timer = startTimer(ms, host.clock);
    await unlessAborted(timer.over, signal);
    timer.cancel();
  }

  async function prepare(present: Goal, spec: ChildSpec, signal: AbortSignal): Promise<Failure> {
    const slot = await takeSlot(spec, signal);
    try {
      await install(present, spec, signal);
    } finally {
      slot.giveBack();
    }
    // Said also when there was nothing to install: whoever hands it over waits for this.
    say(present, "stopped", { pid: null, last_error: null });
    await aborted(signal);
    throw signal.reason;
  }

  function takeSlot(spec: ChildSpec, signal: AbortSignal): Promise<Slot> {
    const isThere = !spec.package || host.installer.isInstalled(spec.package);
    return host.slots.take(isThere ? "start" : "install", signal);
  }

  async function install(
    present: Goal,
    spec: ChildSpec,
    signal: AbortSignal,
  ): Promise<Installed | undefined> {
    if (!spec.package) return undefined;
    if (!host.installer.isInstalled(spec.package)) say(present, "installing", { pid: null });
    return host.installer.install(spec.package, signal);
  }

  void live();
  return {
    get goal() {
      return goal;
    },
    pursue(next) {
      const isOther = next.lostAfterMs !== lostAfterMs;
      lostAfterMs = next.lostAfterMs;
      if (next.key === goal.key) {
        // No reason for another child, but the server waits to hear which one this node goes by.
        if (isOther && reported?.generation === next.generation) {
          reported = { ...reported, lost_after_ms: lostAfterMs };
          host.report(reported);
        }
        return;
      }
      goal = next;
      changed.abort(new Error("the goal changed"));
    },
    restart() {
      history.failures = 0;
      changed.abort(new Error("a restart was asked for"));
    },
    lastReport: () => reported,
    running: () =>
      child && {
        deploymentId: goal.deploymentId,
        generation: child.generation,
        pid: child.of.pid,
      },
  };
}

/** What is known of the children of one term and specification. Null: nothing, or not any more. */
interface Facts {
  restarts?: number;
  pid?: number | null;
  exit_code?: number | null;
  signal?: string | null;
  last_error?: string | null;
  started_at?: string | null;
}

interface History extends Required<Facts> {
  of: Goal;
  failures: number;
}

const createHistory = (of: Goal): History => ({
  of,
  failures: 0,
  restarts: 0,
  pid: null,
  exit_code: null,
  signal: null,
  last_error: null,
  started_at: null,
});

const isSameChild = (a: Goal, b: Goal): boolean =>
  a.generation === b.generation && a.specHash === b.specHash;

interface Failure {
  state: "backoff" | "failed";
  reason: string;
  exit?: Exit;
  ranMs?: number;
}

function reasonOf({ code, signal }: Exit, lastWords: string): string {
  const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
  return lastWords === "" ? how : `${how}: ${lastWords}`;
}

/** What a report takes. Cut before it is made storable: a cut may leave half a character. */
const ERROR_LENGTH_MAX = 4_096;

function startTimer(ms: number, clock: Clock): { over: Promise<undefined>; cancel: Cancel } {
  let cancel: Cancel = () => {};
  const over = new Promise<undefined>((resolve) => {
    cancel = clock.after(ms, () => resolve(undefined));
  });
  return { over, cancel };
}
