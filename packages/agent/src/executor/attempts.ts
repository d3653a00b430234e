import type { Cancel, Clock } from "@tenure/sdk";
import type { Installed, Installer } from "../install/installer.ts";
import type { LogWriter } from "../logs/log-writer.ts";
import { aborted, unlessAborted } from "./abort.ts";
import { type Child, type ChildHost, startChild } from "./child/child.ts";
import type { Exit } from "./child/launch.ts";
import type { ReadSecrets, RunningChild } from "./contract.ts";
import type { DeploymentStatus, Failure } from "./deployment-status.ts";
import type { Goal, GoalSpec } from "./goal.ts";
import { createChildSecrets } from "./secrets.ts";
import type { Slot, Slots } from "./slots.ts";

export interface AttemptHost extends ChildHost {
  installer: Installer;
  slots: Slots;
  clock: Clock;
  readSecrets: ReadSecrets;
  /** A child that is alive after so long counts as started. */
  startedAfterMs: number;
}

/** Single attempts to install and run a deployment. One at a time; each reports its progress. */
export interface Attempts {
  /** Installs, starts and watches a child. Resolves when the child has ended, by itself or because of the signal. */
  run(goal: Goal, spec: GoalSpec, signal: AbortSignal): Promise<Failure>;
  /** Installs, reports that it is ready and waits for the signal. */
  prepare(goal: Goal, spec: GoalSpec, signal: AbortSignal): Promise<Failure>;
  running(): RunningChild | undefined;
}

export function createAttempts(
  status: DeploymentStatus,
  writer: LogWriter,
  host: AttemptHost,
): Attempts {
  const secrets = createChildSecrets(host.readSecrets);
  let running: RunningChild | undefined;

  async function run(goal: Goal, spec: GoalSpec, signal: AbortSignal): Promise<Failure> {
    const slot = await takeSlot(spec, signal);
    try {
      const installed = await install(goal, spec, signal);
      const env = await unlessAborted(secrets.resolve(goal, spec.env), signal);
      if (!env) throw signal.reason;
      slot.convertTo("start");
      const restarts = status.facts.restarts + (status.facts.started_at === null ? 0 : 1);
      status.report(goal, "starting", { pid: null, restarts });
      const child = await startChild({ goal, spec: { ...spec, env }, installed }, writer, host);
      const { deploymentId, generation } = goal;
      running = { deploymentId, generation, pid: child.pid };
      const startedMs = host.clock.monotonicMs();
      const started_at = new Date().toISOString();
      status.report(goal, "starting", { pid: child.pid, started_at });
      try {
        await watch(goal, child, { signal, onStarted: slot.release });
      } finally {
        await child.end();
        running = undefined;
      }
      const exit = await child.exited;
      const ranMs = host.clock.monotonicMs() - startedMs;
      const reason = reasonOf(exit, secrets.redact(child.stderrTail()));
      return { state: "backoff", reason, exit, ranMs };
    } finally {
      slot.release();
    }
  }

  async function watch(
    goal: Goal,
    child: Child,
    { signal, onStarted }: { signal: AbortSignal; onStarted: () => void },
  ): Promise<void> {
    const started = startTimer(host.startedAfterMs, host.clock);
    const early = await unlessAborted(Promise.race([child.exited, started.over]), signal);
    started.cancel();
    onStarted();
    if (!early && !signal.aborted) status.report(goal, "running");
    await unlessAborted(child.exited, signal);
    if (signal.aborted) status.report(goal, "stopping");
  }

  async function prepare(goal: Goal, spec: GoalSpec, signal: AbortSignal): Promise<Failure> {
    const slot = await takeSlot(spec, signal);
    try {
      await install(goal, spec, signal);
    } finally {
      slot.release();
    }
    // Reported also without a package: the present owner waits for it before it hands over.
    status.report(goal, "stopped", { pid: null, last_error: null });
    await aborted(signal);
    throw signal.reason;
  }

  function takeSlot(spec: GoalSpec, signal: AbortSignal): Promise<Slot> {
    const isInstalled = !spec.package || host.installer.isInstalled(spec.package);
    return host.slots.take(isInstalled ? "start" : "install", signal);
  }

  async function install(
    goal: Goal,
    spec: GoalSpec,
    signal: AbortSignal,
  ): Promise<Installed | undefined> {
    if (!spec.package) return undefined;
    if (!host.installer.isInstalled(spec.package)) status.report(goal, "installing", { pid: null });
    return host.installer.install(spec.package, signal);
  }

  return { run, prepare, running: () => running };
}

function reasonOf({ code, signal }: Exit, stderrTail: string): string {
  const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
  return stderrTail === "" ? how : `${how}: ${stderrTail}`;
}

export function startTimer(ms: number, clock: Clock): { over: Promise<undefined>; cancel: Cancel } {
  let cancel: Cancel = () => {};
  const over = new Promise<undefined>((resolve) => {
    cancel = clock.after(ms, () => resolve(undefined));
  });
  return { over, cancel };
}
