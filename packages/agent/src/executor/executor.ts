import { setImmediate as nextTick, setTimeout as wait } from "node:timers/promises";
import { type ListedDeployment, TenureError } from "@tenure/protocol";
import { systemClock } from "@tenure/sdk";
import { createInstaller, type Installer } from "../install/installer.ts";
import { directoryName } from "../install/package-spec.ts";
import { createLogs, type Logs } from "../logs/logs.ts";
import { resolveWrapper } from "../wrapper.ts";
import { BACKOFF } from "./backoff.ts";
import type { DesiredDeployment, Executor, ExecutorOptions } from "./contract.ts";
import { type DataDirectory, openDataDirectory } from "./data-directory/data-directory.ts";
import { onHousekeepingFailed, startHousekeeping } from "./data-directory/housekeeping.ts";
import { createOwners } from "./data-directory/owners.ts";
import { type Goal, goalOf, goneAfter } from "./goal.ts";
import { createRunNpm } from "./npm-run.ts";
import { createRunner, type Runner, type RunnerHost } from "./runner.ts";
import { createSlots } from "./slots.ts";

/** Long enough to notice a program that cannot start, short enough to start twenty of them in a second. */
const STARTED_AFTER_MS = 200;

/**
 * The state of an executor.
 *
 * Invariants: every desired deployment whose row is complete has a runner; a runner without a desired deployment has the
 * goal `gone` and is removed when its child has ended.
 */
interface State {
  desired: ReadonlyMap<string, DesiredDeployment>;
  runners: Map<string, Runner>;
  /** Whether a list was read: before that nothing is known to be unused. */
  isInformed: boolean;
  suspended: { reason: string; mayGoOn: (row: ListedDeployment) => boolean } | undefined;
  stopped: Promise<void> | undefined;
}

/**
 * Starts an executor. Resolves when the children that a former agent of this data directory left running have ended.
 * Throws when the directory cannot be used, or when another agent uses it.
 */
export async function createExecutor(options: ExecutorOptions): Promise<Executor> {
  const { log, tenureUrl, tuning = {} } = options;
  const wrapper = options.wrapper && resolveWrapper(options.wrapper);
  const dataDirectory = await openDataDirectory(options.dataDir, log, options.runAs);
  const { directories } = dataDirectory;
  warnOfRoot(options);
  warnOfPid1(options);
  const installer = installerOf(options, dataDirectory);
  const state: State = {
    desired: new Map(),
    runners: new Map(),
    isInformed: false,
    suspended: undefined,
    stopped: undefined,
  };
  const { runners } = state;
  const logs = logsOf(options, dataDirectory, (id) => runners.has(id));
  const host: RunnerHost = {
    ...dataDirectory,
    tenureUrl: typeof tenureUrl === "string" ? () => tenureUrl : tenureUrl,
    tenureCaFile: options.tenureCaFile,
    stopGraceMs: options.stopGraceMs,
    childUmask: options.childUmask,
    owners: createOwners(options.runAs, directories.work),
    wrapper,
    log,
    installer,
    slots: createSlots(options.startConcurrencyMax),
    clock: options.clock ?? systemClock,
    readSecrets: options.readSecrets ?? (async () => ({})),
    random: Math.random,
    backoff: tuning.backoff ?? BACKOFF,
    startedAfterMs: tuning.startedAfterMs ?? STARTED_AFTER_MS,
    report: options.report,
  };
  await installer.removeUnfinished().catch(onHousekeepingFailed(log));
  const housekeeping = startHousekeeping({
    directories,
    installer,
    isDesired: (id) => runners.has(id),
    isInformed: () => state.isInformed,
    workKeepDays: options.workKeepDays ?? 0,
    isPackageDesired: (name) => [...runners.values()].some(({ goal }) => packageOf(goal) === name),
    log,
  });

  function apply(one: DesiredDeployment): void {
    const { id, generation } = one.row;
    const runner = runners.get(id);
    const goesOn = isRunning(runner, generation) && state.suspended?.mayGoOn(one.row);
    const goal = goalOf(one, goesOn ? undefined : state.suspended?.reason);
    if (goal && runner) runner.setGoal(goal);
    else if (goal) runners.set(id, startRunner(goal));
    else if (runner && runner.goal.generation !== generation)
      runner.setGoal(goneAfter(runner.goal));
  }

  function applyAll(): void {
    if (!state.stopped) state.desired.forEach(apply);
  }

  function startRunner(goal: Goal): Runner {
    const writer = logs.writer(goal.deploymentId);
    const onGone = (): void => {
      runners.delete(goal.deploymentId);
      void writer.close();
    };
    return createRunner(goal, { writer, onGone }, host);
  }

  async function stopAll(): Promise<void> {
    housekeeping.stop();
    for (const runner of runners.values()) runner.setGoal(goneAfter(runner.goal));
    // The agent does not wait longer for a process that the kernel does not end; the guard kills it.
    const deadline = performance.now() + options.stopGraceMs + KILLED_MS;
    while (runners.size > 0 && performance.now() < deadline) await wait(POLL_MS);
    await dataDirectory.release();
  }

  return {
    setDesired(all) {
      if (state.stopped) return;
      state.isInformed = true;
      const next = new Map(all.map((one) => [one.row.id, one]));
      for (const [id, one] of next) if (!isSame(state.desired.get(id), one)) apply(one);
      for (const [id, runner] of runners) if (!next.has(id)) runner.setGoal(goneAfter(runner.goal));
      state.desired = next;
    },
    suspend(reason, mayGoOn = () => false) {
      state.suspended = { reason, mayGoOn };
      applyAll();
    },
    resume() {
      state.suspended = undefined;
      applyAll();
    },
    reportAll() {
      for (const runner of runners.values()) {
        const report = runner.lastReport();
        if (report) options.report(report);
      }
    },
    async restart(deploymentId) {
      const runner = state.desired.has(deploymentId) ? runners.get(deploymentId) : undefined;
      if (!runner) throw new TenureError("NOT_FOUND", { what: "deployment", id: deploymentId });
      runner.restart();
      await nextTick(); // By now the runner has reported `stopping`.
    },
    readLog: logs.read,
    followLog: logs.follow,
    running: () =>
      [...runners.values()].map((runner) => runner.running()).filter((one) => one !== undefined),
    stop() {
      state.stopped ??= stopAll();
      return state.stopped;
    },
  };
}

function installerOf(
  { log, env = process.env, childUmask, runAs, packagesMaxMb }: ExecutorOptions,
  { directories, guard }: DataDirectory,
): Installer {
  return createInstaller({
    directory: directories.packages,
    runNpm: createRunNpm(guard, { env, umask: childUmask }),
    isShared: runAs !== undefined,
    ...(packagesMaxMb !== undefined && { bytesMax: packagesMaxMb * 1_048_576 }),
    onDamaged: (name, reason) =>
      log({
        level: "warn",
        event: "package.damaged",
        message: "installed package is damaged; installing it again",
        details: { package: name, reason },
      }),
  });
}

const logsOf = (
  { log, tuning }: ExecutorOptions,
  { directories }: DataDirectory,
  isKnown: (deploymentId: string) => boolean,
): Logs =>
  createLogs({
    directory: directories.logs,
    limits: tuning?.logs,
    isKnown,
    onFailed: (deployment_id, error) =>
      log({
        level: "warn",
        event: "child.log-failed",
        message:
          "could not write or read the log of a child; its lines are dropped until a retry succeeds",
        details: { deployment_id, reason: error.message },
      }),
  });

/** Children of root can do anything on this machine, also if the deployment's author may not. */
function warnOfRoot({ runAs, wrapper, log }: ExecutorOptions): void {
  if (process.geteuid?.() !== 0 || runAs || wrapper) return;
  log({
    level: "warn",
    event: "children.as-root",
    message:
      "this agent and its children run as root; set NODE_UNIT_RUN_AS or NODE_UNIT_WRAPPER, or run it as another user",
  });
}

function warnOfPid1({ log }: ExecutorOptions): void {
  if (process.pid !== 1) return;
  log({
    level: "warn",
    event: "orphans.not-collected",
    message:
      "this agent is process 1, and Node does not collect orphans of its children; start it by the command tenure itself, or with an init (docker run --init)",
  });
}

const isRunning = (runner: Runner | undefined, generation: number): boolean =>
  runner?.goal.kind === "run" && runner.goal.generation === generation;

const KILLED_MS = 15_000;
const POLL_MS = 10;

/** Compares rows by identity: the caller keeps a row object until the row changes. */
const isSame = (former: DesiredDeployment | undefined, one: DesiredDeployment): boolean =>
  former !== undefined &&
  former.row === one.row &&
  former.mode === one.mode &&
  (former.refused.length + one.refused.length === 0 ||
    former.refused.join() === one.refused.join());

const packageOf = (goal: Goal): string | undefined =>
  "spec" in goal && goal.spec.package ? directoryName(goal.spec.package) : undefined;
