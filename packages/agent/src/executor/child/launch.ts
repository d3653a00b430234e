import { type ChildProcess, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Owner } from "../../run-as.ts";
import { type FileLock, identityOf } from "../data-directory/locks.ts";
import type { Guard } from "../orphans/guard.ts";
import { signalGroup } from "./group.ts";
import type { OutputPipes } from "./pipes.ts";

export interface Program {
  /** A path, or a name in the PATH of `env`. */
  file: string;
  args: readonly string[];
  env: NodeJS.ProcessEnv;
  directory: string;
  /** The agent's user by default. */
  owner?: Owner | undefined;
  /** The agent's by default. */
  umask?: number | undefined;
}

/** A process group that the guard kills when the agent ends. */
export interface Launched {
  /** The id of the group and of its first process. */
  pid: number;
  stdout: Readable;
  stderr: Readable;
  /** Resolves when the first process has ended; others of its group may be alive. */
  exited: Promise<Exit>;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/**
 * Waits for a line before it executes the program. If the agent dies before that, the pipe ends without the line, and so
 * does the shell: no child ever runs that the guard would not kill. `exec` keeps pid and lock. The first argument is the
 * program's umask, or empty.
 */
const LAUNCH = 'read -r go <&3 || exit 125; [ -z "$1" ] || umask "$1"; shift; exec "$@" 3<&-';

/**
 * Starts a program in a process group of its own. The guard watches the group, and the lock names it, before the program's
 * first instruction. The lock is held until the last process of the group has ended.
 */
export async function launch(
  program: Program,
  guard: Guard,
  {
    lock,
    pipes,
    onWaiting = () => {},
  }: {
    lock?: FileLock;
    pipes?: OutputPipes | undefined;
    /** Called when the process exists and has not executed the program. */
    onWaiting?: (pid: number) => void;
  } = {},
): Promise<Launched> {
  const { child, exited } = spawnWaiting(program, { lock, pipes });
  const pid = await pidOf(child);
  try {
    lock?.note(identityOf(pid));
    await guard.watch(pid);
    onWaiting(pid);
    await proceed(child.stdio[3] as Writable);
  } catch (error) {
    signalGroup(pid, "SIGKILL");
    await exited;
    guard.forget(pid);
    pipes?.destroy();
    throw error;
  }
  const { stdout, stderr } = pipes ?? (child as { stdout: Readable; stderr: Readable });
  return { pid, stdout, stderr, exited };
}

function spawnWaiting(
  program: Program,
  { lock, pipes }: { lock: FileLock | undefined; pipes: OutputPipes | undefined },
): { child: ChildProcess; exited: Promise<Exit> } {
  try {
    const outputs = pipes?.childFds ?? (["pipe", "pipe"] as const);
    const umask = program.umask?.toString(8) ?? "";
    const child = spawn("/bin/sh", ["-c", LAUNCH, "sh", umask, program.file, ...program.args], {
      cwd: program.directory,
      env: program.env,
      ...program.owner,
      detached: true,
      stdio: ["ignore", ...outputs, "pipe", ...(lock ? [lock.fd] : [])],
    });
    if (child.pid === undefined) pipes?.destroy();
    return { child, exited: exitOf(child) };
  } catch (error) {
    pipes?.destroy(); // An argument is invalid for any program.
    throw error;
  } finally {
    pipes?.closeChildEnds();
  }
}

/** Rejects with the reason if the program could not be started. */
function pidOf(child: ChildProcess): Promise<number> {
  if (child.pid !== undefined) {
    child.on("error", () => {}); // A signal could not be sent; its sender checks the group.
    return Promise.resolve(child.pid);
  }
  return new Promise((_, reject) => child.once("error", reject));
}

function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
}

function proceed(go: Writable): Promise<void> {
  return new Promise((resolve, reject) => {
    go.once("error", reject);
    go.end("go\n", resolve);
  });
}
