import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import fsx from "fs-native-extensions";
import { isStillAlive, type ProcessIdentity, readBootId, readProcess } from "../child/proc.ts";

/**
 * A lock of the kernel on an open file. It belongs to the open file, not to a process: whoever inherits the descriptor
 * keeps it locked, and it ends with the last of them, however they end.
 */
export interface FileLock {
  readonly fd: number;
  /** Notes in the file who it is that holds it, for whoever finds it locked or left behind. */
  note(holder: ProcessIdentity): void;
  release(): void;
}

/** `undefined`: somebody else has it. */
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
  let held = true;
  return {
    fd,
    note({ pid, startTicks }) {
      ftruncateSync(fd);
      writeSync(fd, `${pid} ${startTicks} ${readBootId()}\n`);
    },
    release() {
      if (held) closeSync(fd);
      held = false;
    },
  };
}

/** Whom the file names, if it was written since the machine was started: before, pids meant somebody else. */
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

/** How long the guard of a dead agent may take to end its children. */
const FORMER_GUARD_MS = 20_000;
const POLL_MS = 20;

/**
 * Takes the data directory for this agent. Of an agent that is dead only its guard is left, which ends soon; for a
 * living one there is nothing to wait for.
 */
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
        `another agent${holder ? ` (pid ${holder.pid})` : ""} uses this data directory: stop it, or set ` +
          "NODE_UNIT_DATA_DIR to a directory of this agent's own",
      );
    await wait(POLL_MS);
  }
}
