import { type ChildProcess, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Owner } from "../../run-as.ts";
import { type FileLock, identityOf } from "../data-directory/locks.ts";
import type { Guard } from "../orphans/guard.ts";
import { signalGroup } from "./group.ts";
import type { OutputPipes } from "./pipes.ts";

export interface Program {
  /** A path, or a name to be found in the PATH of `env`. */
  file: string;
  args: readonly string[];
  env: NodeJS.ProcessEnv;
  directory: string;
  /** The agent's user unless given. */
  owner?: Owner | undefined;
  /** The agent's unless given. */
  umask?: number | undefined;
}

/** A process group that ends with the agent at the latest. */
export interface Launched {
  /** Of the group and of its first process. */
  pid: number;
  stdout: Readable;
  stderr: Readable;
  /** Of the first process; others of its group may still be there. */
  exited: Promise<Exit>;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/**
 * Waits for a word before it becomes the program. Should the agent die before that, the pipe ends without the word,
 * and so does the shell: at no moment is there a child that nobody would end. `exec` keeps pid and lock. The first
 * argument is the program's umask, if it has one of its own.
 */
const LAUNCH = 'read -r go <&3 || exit 125; [ -z "$1" ] || umask "$1"; shift; exec "$@" 3<&-';

/**
 * Starts a program in a process group of its own. The guard knows the group, and the lock names it, before the
 * program's first instruction. The group keeps the lock for as long as any process of it does.
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
    /** It exists, and has not begun. */
    onWaiting?: (pid: number) => void;
  } = {},
): Promise<Launched> {
  const { child, exited } = spawnWaiting(program, { lock, pipes });
  const pid = await pidOf(child);
  try {
    lock?.note(identityOf(pid));
    await guard.watch(pid);
    onWaiting(pid);
    await letGo(child.stdio[3] as Writable);
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
    pipes?.destroy(); // an argument that no program can be given
    throw error;
  } finally {
    pipes?.closeChildEnds();
  }
}

/** A program that cannot be started has no pid, and says why in an event. */
function pidOf(child: ChildProcess): Promise<number> {
  if (child.pid !== undefined) {
    child.on("error", () => {}); // a signal that could not be sent; its senders look at the group
    return Promise.resolve(child.pid);
  }
  return new Promise((_, reject) => child.once("error", reject));
}

function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
}

function letGo(go: Writable): Promise<void> {
  return new Promise((resolve, reject) => {
    go.once("error", reject);
    go.end("go\n", resolve);
  });
}
