import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Installed } from "../../install/installer.ts";
import { pumpLines } from "../../logs/line-pump.ts";
import type { LogWriter } from "../../logs/log-writer.ts";
import { createTail } from "../../logs/tail.ts";
import type { ExecutorLog } from "../contract.ts";
import type { Directories } from "../data-directory/directories.ts";
import { type FileLock, readHolder, tryLock } from "../data-directory/locks.ts";
import { giveDirectory, type Owners } from "../data-directory/owners.ts";
import type { ChildSpec, Goal } from "../goal.ts";
import type { Cgroups } from "../orphans/cgroups.ts";
import { lockPath } from "../orphans/former-children.ts";
import type { Guard } from "../orphans/guard.ts";
import type { Strays } from "../orphans/orphans.ts";
import { childEnvironment } from "./environment.ts";
import { groupGone, signalGroup } from "./group.ts";
import { type Exit, type Launched, launch } from "./launch.ts";
import { openPipes } from "./pipes.ts";
import { executionOf } from "./program.ts";
import { wrapped } from "./wrapped.ts";

/** What every child needs of its surroundings. */
export interface ChildHost {
  directories: Directories;
  tenureUrl: string;
  stopGraceMs: number;
  /** The agent's unless given. */
  childUmask?: number | undefined;
  owners: Owners;
  /** What every child is started by: an absolute path and arguments. */
  wrapper?: readonly string[] | undefined;
  guard: Guard;
  strays: Strays;
  cgroups: Cgroups;
  log(line: ExecutorLog): void;
}

/** One process group, from its start until nothing of it is left. */
export interface Child {
  pid: number;
  /** Its first process has ended; the rest of the group may be there until `end` resolves. */
  exited: Promise<Exit>;
  /** The last it wrote to stderr. */
  lastWords(): string;
  /**
   * SIGTERM to the group, the grace, SIGKILL. Resolves when no process of it is left and the lock is free: only then
   * may another be started.
   */
  end(): Promise<void>;
}

/** Rejects when it cannot be started. Nothing is left of it then. */
export async function startChild(
  { goal, spec, installed }: { goal: Goal; spec: ChildSpec; installed: Installed | undefined },
  writer: LogWriter,
  host: ChildHost,
): Promise<Child> {
  const { deploymentId, generation } = goal;
  const workDirectory = join(host.directories.work, deploymentId);
  await mkdir(workDirectory, { recursive: true, mode: 0o700 });
  const execution = await executionOf(spec, installed);
  const surroundings = childEnvironment(
    { deploymentId, generation, tenureUrl: host.tenureUrl, workDirectory },
    { env: spec.env, pathFirst: installed?.binDirectories ?? [] },
  );
  const lock = await lockDeployment(deploymentId, host);
  try {
    const owner = host.owners.of(deploymentId);
    if (owner) await giveDirectory(workDirectory, owner);
    const started = { ...execution, env: surroundings, directory: workDirectory };
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

/** Before its first instruction, so that nothing it starts is elsewhere. */
function confine(pid: number, deploymentId: string, host: ChildHost): void {
  try {
    host.cgroups.put(deploymentId, pid);
  } catch (error) {
    host.log({
      level: "warn",
      event: "child.not-confined",
      message: "a child could not be put into a cgroup; it runs without one",
      details: { deployment_id: deploymentId, reason: (error as Error).message },
    });
  }
}

/** One process per deployment on this node, whoever started the other one. */
async function lockDeployment(deploymentId: string, host: ChildHost): Promise<FileLock> {
  const path = lockPath(host.directories, deploymentId);
  const lock = tryLock(path) ?? ((await host.strays.end(deploymentId)) > 0 && tryLock(path));
  if (lock) return lock;
  const holder = readHolder(path);
  const who = holder ? `, started with process group ${holder.pid}` : "";
  throw new Error(`another process of this deployment still runs on this machine${who}`);
}

const LAST_WORDS = { bytesMax: 2_048, linesMax: 20 };

function childOf(
  { pid, stdout, stderr, exited }: Launched,
  {
    deploymentId,
    lock,
    writer,
    host,
  }: { deploymentId: string; lock: FileLock; writer: LogWriter; host: ChildHost },
): Child {
  const tail = createTail(LAST_WORDS);
  const said = Promise.all([
    pumpLines(stdout, (lines) => writer.append(lines)),
    pumpLines(stderr, (lines) => {
      tail.add(lines);
      return writer.append(lines);
    }),
  ]);

  async function end(): Promise<void> {
    await endGroup(pid, deploymentId, host);
    const strays = await host.strays.end(deploymentId);
    if (strays > 0)
      host.log({
        level: "warn",
        event: "child.strays-killed",
        message: "processes that had left the group of their deployment were killed",
        details: { deployment_id: deploymentId, processes: strays },
      });
    await exited;
    host.cgroups.remove(deploymentId);
    host.guard.forget(pid);
    // Nobody is left who could write, so the pipes end; a process out of our sight must not hold us up.
    await Promise.race([said, wait(LAST_OUTPUT_MS, undefined, { ref: false })]);
    stdout.destroy();
    stderr.destroy();
    await said;
    lock.release();
  }

  let ending: Promise<void> | undefined;
  return {
    pid,
    exited,
    lastWords: () => tail.text(),
    end() {
      ending ??= end();
      return ending;
    },
  };
}

const LAST_OUTPUT_MS = 2_000;
/** The kernel ends a killed process at once, unless it waits for a disk or a network share. */
const KILLED_MS = 10_000;

async function endGroup(pid: number, deploymentId: string, host: ChildHost): Promise<void> {
  signalGroup(pid, "SIGTERM");
  if (await groupGone(pid, host.stopGraceMs)) return;
  const details = { deployment_id: deploymentId, pid };
  signalGroup(pid, "SIGKILL");
  host.log({
    level: "warn",
    event: "child.killed",
    message: "a child did not stop within the grace and was killed",
    details: { ...details, stop_grace_ms: host.stopGraceMs },
  });
  while (!(await groupGone(pid, KILLED_MS))) {
    host.log({
      level: "error",
      event: "child.not-ended",
      message: "the kernel does not end a killed child; nothing is started in its place",
      details,
    });
    signalGroup(pid, "SIGKILL");
  }
}
