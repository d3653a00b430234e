import { setImmediate as nextTurn, setTimeout as wait } from "node:timers/promises";
import { type ListedDeployment, TenureError } from "@tenure/protocol";
import { systemClock } from "@tenure/sdk";
import { createInstaller } from "../install/installer.ts";
import { directoryName } from "../install/package-spec.ts";
import { createLogs } from "../logs/logs.ts";
import { resolveWrapper } from "../wrapper.ts";
import { BACKOFF } from "./backoff.ts";
import type { DesiredDeployment, Executor, ExecutorOptions } from "./contract.ts";
import { takeDirectory } from "./data-directory/data-directory.ts";
import { onHousekeepingFailed, startHousekeeping } from "./data-directory/housekeeping.ts";
import { createOwners } from "./data-directory/owners.ts";
import { type Goal, goalOf, goneAfter } from "./goal.ts";
import { createRunNpm } from "./npm-run.ts";
import { createRunner, type Runner, type RunnerHost } from "./runner.ts";
import { createSlots } from "./slots.ts";

/** Long enough to see a program that cannot even begin, short enough that twenty of them start in a second. */
const STARTED_AFTER_MS = 200;

/**
 * Runs what is wanted on this machine. Resolves when whatever a former agent of this data directory left running has
 * ended. Throws when the directory cannot be used, or when another agent uses it now.
 */
export async function createExecutor(options: ExecutorOptions): Promise<Executor> {
  const { log, tuning = {} } = options;
  const wrapper = options.wrapper && resolveWrapper(options.wrapper);
  const { directories, strays, cgroups, guard, release } = await takeDirectory(
    options.dataDir,
    log,
    options.runAs,
  );
  warnOfRoot(options);
  if (process.pid === 1)
    log({
      level: "warn",
      event: "orphans.not-collected",
      message:
        "this agent is process 1, and Node does not collect orphans of its children; start it by the command tenure itself, or with an init (docker run --init)",
    });
  const runNpm = createRunNpm(guard, {
    env: options.env ?? process.env,
    umask: options.childUmask,
  });
  const installer = createInstaller({
    directory: directories.packages,
    runNpm,
    isShared: options.runAs !== undefined,
    ...(options.packagesMaxMb !== undefined && { bytesMax: options.packagesMaxMb * 1_048_576 }),
    onDamaged: (name, reason) =>
      log({
        level: "warn",
        event: "package.damaged",
        message: "an installed package is not whole; it is installed again",
        details: { package: name, reason },
      }),
  });
  const runners = new Map<string, Runner>();
  const logs = createLogs({
    directory: directories.logs,
    limits: tuning.logs,
    isKnown: (id) => runners.has(id),
    onFailed: (deployment_id, error) =>
      log({
        level: "warn",
        event: "child.log-failed",
        message: "lines of a child could not be written or read; they are dropped until it works",
        details: { deployment_id, reason: error.message },
      }),
  });
  const host: RunnerHost = {
    directories,
    tenureUrl: options.tenureUrl,
    stopGraceMs: options.stopGraceMs,
    childUmask: options.childUmask,
    owners: createOwners(options.runAs, directories.work),
    wrapper,
    guard,
    strays,
    cgroups,
    log,
    installer,
    slots: createSlots(options.startConcurrencyMax),
    clock: options.clock ?? systemClock,
    random: Math.random,
    backoff: tuning.backoff ?? BACKOFF,
    startedAfterMs: tuning.startedAfterMs ?? STARTED_AFTER_MS,
    report: options.report,
  };

  let wanted = new Map<string, DesiredDeployment>();
  let isInformed = false;
  let suspended: { reason: string; mayGoOn: (row: ListedDeployment) => boolean } | undefined;
  let stopped: Promise<void> | undefined;
  await installer.removeUnfinished().catch(onHousekeepingFailed(log));
  const housekeeping = startHousekeeping({
    directories,
    installer,
    isWanted: (id) => runners.has(id),
    isInformed: () => isInformed,
    workKeepDays: options.workKeepDays ?? 0,
    isWantedPackage: (name) => [...runners.values()].some(({ goal }) => packageOf(goal) === name),
    log,
  });

  function aim(one: DesiredDeployment): void {
    const { id, generation } = one.row;
    const runner = runners.get(id);
    const goesOn = isRunning(runner, generation) && suspended?.mayGoOn(one.row);
    const goal = goalOf(one, goesOn ? undefined : suspended?.reason);
    if (goal && runner) runner.pursue(goal);
    else if (goal) runners.set(id, begin(goal));
    else if (runner && runner.goal.generation !== generation) runner.pursue(goneAfter(runner.goal));
  }

  function begin(goal: Goal): Runner {
    const { deploymentId } = goal;
    const writer = logs.writer(deploymentId);
    const onGone = (): void => {
      runners.delete(deploymentId);
      void writer.close();
    };
    return createRunner(goal, { writer, onGone }, host);
  }

  async function stopAll(): Promise<void> {
    housekeeping.stop();
    for (const runner of runners.values()) runner.pursue(goneAfter(runner.goal));
    // A process that the kernel does not end must not keep the agent from ending; the guard has it.
    const deadline = performance.now() + options.stopGraceMs + KILLED_MS;
    while (runners.size > 0 && performance.now() < deadline) await wait(POLL_MS);
    await release();
  }

  return {
    setDesired(all) {
      if (stopped) return;
      isInformed = true;
      const next = new Map(all.map((one) => [one.row.id, one]));
      for (const [id, one] of next) if (!isSame(wanted.get(id), one)) aim(one);
      for (const [id, runner] of runners) if (!next.has(id)) runner.pursue(goneAfter(runner.goal));
      wanted = next;
    },
    suspend(reason, mayGoOn = () => false) {
      suspended = { reason, mayGoOn };
      if (!stopped) wanted.forEach(aim);
    },
    resume() {
      suspended = undefined;
      if (!stopped) wanted.forEach(aim);
    },
    reportAll() {
      for (const runner of runners.values()) {
        const report = runner.lastReport();
        if (report) options.report(report);
      }
    },
    async restart(deploymentId) {
      const runner = wanted.has(deploymentId) ? runners.get(deploymentId) : undefined;
      if (!runner) throw new TenureError("NOT_FOUND", { what: "deployment", id: deploymentId });
      runner.restart();
      await nextTurn(); // by now it has said that it stops
    },
    readLog: logs.read,
    followLog: logs.follow,
    running: () =>
      [...runners.values()].map((runner) => runner.running()).filter((one) => one !== undefined),
    stop() {
      stopped ??= stopAll();
      return stopped;
    },
  };
}

/** Children of root can do anything on this machine, whatever the deployment's author may do. */
function warnOfRoot({ runAs, wrapper, log }: ExecutorOptions): void {
  if (process.geteuid?.() !== 0 || runAs || wrapper) return;
  log({
    level: "warn",
    event: "children.as-root",
    message:
      "this agent and its children run as root; set NODE_UNIT_RUN_AS or NODE_UNIT_WRAPPER, or run it as another user",
  });
}

const isRunning = (runner: Runner | undefined, generation: number): boolean =>
  runner?.goal.kind === "run" && runner.goal.generation === generation;

const KILLED_MS = 15_000;
const POLL_MS = 10;

/** The caller keeps the rows it has; a row that changed is another object. */
const isSame = (former: DesiredDeployment | undefined, one: DesiredDeployment): boolean =>
  former !== undefined &&
  former.row === one.row &&
  former.mode === one.mode &&
  (former.refused.length + one.refused.length === 0 ||
    former.refused.join() === one.refused.join());

const packageOf = (goal: Goal): string | undefined =>
  "spec" in goal && goal.spec.package ? directoryName(goal.spec.package) : undefined;
