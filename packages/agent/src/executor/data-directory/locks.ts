import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import fsx from "fs-native-extensions";
import { isStillAlive, type ProcessIdentity, readBootId, readProcess } from "../child/proc.ts";
import type { Directories } from "./directories.ts";

/**
 * A kernel lock on an open file. It belongs to the open file and not to a process: every process that inherits the
 * descriptor keeps it locked, and it ends with the last of them, even when they are killed.
 */
export interface FileLock {
  readonly fd: number;
  /** Writes the holder into the file, for processes that find it locked or left behind. */
  note(holder: ProcessIdentity): void;
  release(): void;
}

/** Returns `undefined` if another process holds the lock. */
export function tryLock(path: string): FileLock | undefined {
  const fd = openSync(path, "a+", 0o600);
  try {
    if (fsx.tryLock(fd)) return lockOn(fd);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  return undefined;
}

function lockOn(fd: number): FileLock {
  let isHeld = true;
  return {
    fd,
    note({ pid, startTicks }) {
      ftruncateSync(fd);
      writeSync(fd, `${pid} ${startTicks} ${readBootId()}\n`);
    },
    release() {
      if (isHeld) closeSync(fd);
      isHeld = false;
    },
  };
}

/** Returns the holder in the file, if it was written since the machine booted: older pids mean other processes. */
export function readHolder(path: string): ProcessIdentity | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
  const [, pid, startTicks, bootId] = /^(\d+) (\d+) (\S*)\n$/.exec(text) ?? [];
  if (pid === undefined || bootId !== readBootId()) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}

export const identityOf = (pid: number): ProcessIdentity => ({
  pid,
  startTicks: readProcess(pid)?.startTicks ?? 0,
});

export const AGENT_LOCK = "agent.lock";

export const lockPath = ({ run }: Directories, deploymentId: string): string =>
  join(run, `${deploymentId}.lock`);

/** How long the guard of a dead agent may take to kill its children. */
const FORMER_GUARD_MS = 20_000;
const POLL_MS = 20;

/** Locks the data directory for this agent. Waits for the guard of a dead agent, which ends soon; not for a living agent. */
export async function lockDataDirectory(run: string): Promise<FileLock> {
  const path = join(run, AGENT_LOCK);
  const deadline = performance.now() + FORMER_GUARD_MS;
  for (;;) {
    const lock = tryLock(path);
    if (lock) {
      lock.note(identityOf(process.pid));
      return lock;
    }
    const holder = readHolder(path);
    if ((holder && isStillAlive(holder)) || performance.now() > deadline)
      throw new Error(
        `another agent${holder ? ` (pid ${holder.pid})` : ""} uses this data directory; stop it, or set ` +
          "NODE_UNIT_DATA_DIR to a directory of this agent's own",
      );
    await wait(POLL_MS);
  }
}
