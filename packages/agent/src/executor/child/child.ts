import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Installed } from "../../install/installer.ts";
import { pumpLines } from "../../logs/line-pump.ts";
import type { LogWriter } from "../../logs/log-writer.ts";
import { createTail } from "../../logs/tail.ts";
import type { ExecutorLog } from "../contract.ts";
import type { Directories } from "../data-directory/directories.ts";
import { type FileLock, lockPath, readHolder, tryLock } from "../data-directory/locks.ts";
import { chownDirectory, type Owners } from "../data-directory/owners.ts";
import type { ChildSpec, Goal } from "../goal.ts";
import type { Cgroups } from "../orphans/cgroups.ts";
import type { Guard } from "../orphans/guard.ts";
import type { Orphans } from "../orphans/orphans.ts";
import { childEnvironment } from "./environment.ts";
import { groupGone, signalGroup } from "./group.ts";
import { type Exit, type Launched, launch } from "./launch.ts";
import { openPipes } from "./pipes.ts";
import { executionOf } from "./program.ts";
import { wrapped } from "./wrapped.ts";

/** What all children of an executor share. */
export interface ChildHost {
  directories: Directories;
  /** An instance that answers. */
  tenureUrl: () => string;
  tenureCaFile?: string | undefined;
  stopGraceMs: number;
  /** The agent's by default. */
  childUmask?: number | undefined;
  owners: Owners;
  /** The absolute path and arguments of the program that starts each child. */
  wrapper?: readonly string[] | undefined;
  guard: Guard;
  orphans: Orphans;
  cgroups: Cgroups;
  log(line: ExecutorLog): void;
}

/** One process group, from its start until its last process has ended. */
export interface Child {
  pid: number;
  /** Resolves when the first process has ended; others of the group may live until `end` resolves. */
  exited: Promise<Exit>;
  /** The last lines of stderr. */
  stderrTail(): string;
  /**
   * Sends SIGTERM to the group and, after the grace, SIGKILL. Resolves when no process of it is left and the lock is free:
   * only then may another child be started.
   */
  end(): Promise<void>;
}

/** Starts a child. Rejects when it cannot be started; then no process of it is left. */
export async function startChild(
  { goal, spec, installed }: { goal: Goal; spec: ChildSpec; installed: Installed | undefined },
  writer: LogWriter,
  host: ChildHost,
): Promise<Child> {
  const { deploymentId, generation } = goal;
  const workDirectory = join(host.directories.work, deploymentId);
  await mkdir(workDirectory, { recursive: true, mode: 0o700 });
  const execution = await executionOf(spec, installed);
  const environment = childEnvironment(
    {
      ...{ deploymentId, generation, workDirectory, tenureCaFile: host.tenureCaFile },
      ...{ tenureUrl: host.tenureUrl(), token: goal.childToken },
    },
    { env: spec.env, pathFirst: installed?.binDirectories ?? [] },
  );
  const lock = await lockDeployment(deploymentId, host);
  try {
    const owner = host.owners.of(deploymentId);
    if (owner) await chownDirectory(workDirectory, owner);
    const started = { ...execution, env: environment, directory: workDirectory };
    const program = { ...wrapped(started, spec.env, host), umask: host.childUmask, owner };
    const pipes = await openPipes(join(host.directories.run, deploymentId), owner);
    const launched = await launch(program, host.guard, {
      lock,
      pipes,
      onWaiting: (pid) => confine(pid, deploymentId, host),
    });
    return childOf(launched, { deploymentId, lock, writer, host });
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** Puts a process into its cgroup before its first instruction, so that all its children are in it too. */
function confine(pid: number, deploymentId: string, host: ChildHost): void {
  try {
    host.cgroups.put(deploymentId, pid);
  } catch (error) {
    host.log({
      level: "warn",
      event: "child.not-confined",
      message: "could not put a child into a cgroup; it runs without one",
      details: { deployment_id: deploymentId, reason: (error as Error).message },
    });
  }
}

/** Ensures one process per deployment on this machine, also across agents. */
async function lockDeployment(deploymentId: string, host: ChildHost): Promise<FileLock> {
  const path = lockPath(host.directories, deploymentId);
  const lock = tryLock(path) ?? ((await host.orphans.kill(deploymentId)) > 0 && tryLock(path));
  if (lock) return lock;
  const holder = readHolder(path);
  const startedAs = holder ? `, started with process group ${holder.pid}` : "";
  throw new Error(`another process of this deployment still runs on this machine${startedAs}`);
}

const STDERR_TAIL = { bytesMax: 2_048, linesMax: 20 };

function childOf(
  { pid, stdout, stderr, exited }: Launched,
  {
    deploymentId,
    lock,
    writer,
    host,
  }: { deploymentId: string; lock: FileLock; writer: LogWriter; host: ChildHost },
): Child {
  const tail = createTail(STDERR_TAIL);
  const output = Promise.all([
    pumpLines(stdout, (lines) => writer.append(lines)),
    pumpLines(stderr, (lines) => {
      tail.add(lines);
      return writer.append(lines);
    }),
  ]);

  async function end(): Promise<void> {
    await endGroup(pid, deploymentId, host);
    const killed = await host.orphans.kill(deploymentId);
    if (killed > 0)
      host.log({
        level: "warn",
        event: "child.strays-killed",
        message: "killed processes that had left the process group of their deployment",
        details: { deployment_id: deploymentId, processes: killed },
      });
    await exited;
    host.cgroups.remove(deploymentId);
    host.guard.forget(pid);
    // No process is left to write, so the pipes end. The limit is for a process that could not be found.
    await Promise.race([output, wait(LAST_OUTPUT_MS, undefined, { ref: false })]);
    stdout.destroy();
    stderr.destroy();
    await output;
    lock.release();
  }

  let ending: Promise<void> | undefined;
  return {
    pid,
    exited,
    stderrTail: () => tail.text(),
    end() {
      ending ??= end();
      return ending;
    },
  };
}

const LAST_OUTPUT_MS = 2_000;
/** The kernel ends a killed process at once, unless the process waits for a disk or a network share. */
const KILLED_MS = 10_000;

async function endGroup(pid: number, deploymentId: string, host: ChildHost): Promise<void> {
  signalGroup(pid, "SIGTERM");
  if (await groupGone(pid, host.stopGraceMs)) return;
  const details = { deployment_id: deploymentId, pid };
  signalGroup(pid, "SIGKILL");
  host.log({
    level: "warn",
    event: "child.killed",
    message: "child did not stop within the grace; killed it",
    details: { ...details, stop_grace_ms: host.stopGraceMs },
  });
  while (!(await groupGone(pid, KILLED_MS))) {
    host.log({
      level: "error",
      event: "child.not-ended",
      message: "killed child does not end; no other child is started in its place",
      details,
    });
    signalGroup(pid, "SIGKILL");
  }
}
