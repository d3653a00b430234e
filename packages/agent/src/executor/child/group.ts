import { setTimeout as wait } from "node:timers/promises";
import { isAlive, listProcesses, type ProcessEntry } from "./proc.ts";

/** Sends a signal to every process of the group, and returns whether the group exists. */
export function signalGroup(groupId: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(-groupId, signal);
  } catch (error) {
    // EPERM: the group exists with other rights (a set-user-id program), so it is not gone.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Whether a process of the group is alive and not a zombie. */
export function isGroupAlive(groupId: number): boolean {
  try {
    process.kill(-groupId, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  // A signal also finds zombies, and an orphan may stay one for more than a second.
  return livesIn(groupId, recentProcesses()) || livesIn(groupId, freshProcesses());
}

const POLL_MS_MIN = 5;
const POLL_MS_MAX = 50;

/** Resolves with true when the group is gone, with false after `limitMs`. */
export async function groupGone(groupId: number, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  for (let pauseMs = POLL_MS_MIN; isGroupAlive(groupId); ) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) return false;
    await wait(Math.min(pauseMs, leftMs));
    pauseMs = Math.min(pauseMs * 2, POLL_MS_MAX);
  }
  return true;
}

const LIST_AGE_MS_MAX = 10;
let list: { atMs: number; processes: ProcessEntry[] | undefined } = { atMs: 0, processes: [] };

/**
 * A list shared by all groups that are being stopped, so that a hundred slow children do not read /proc a hundred times. A
 * list of up to 10 ms may show a group as alive (its caller polls again), but never as gone: the group may be younger.
 */
function recentProcesses(): ProcessEntry[] | undefined {
  return performance.now() - list.atMs <= LIST_AGE_MS_MAX ? list.processes : [];
}

function freshProcesses(): ProcessEntry[] | undefined {
  list = { atMs: performance.now(), processes: listProcesses() };
  return list.processes;
}

/** Without a list, a group that a signal finds counts as alive. */
const livesIn = (groupId: number, processes: ProcessEntry[] | undefined): boolean =>
  processes?.some((entry) => entry.groupId === groupId && isAlive(entry)) ?? true;
