import { setTimeout as wait } from "node:timers/promises";
import { isAlive, listProcesses, type ProcessEntry } from "./proc.ts";

/** Sends a signal to every process of the group, and tells whether there was anybody. */
export function signalGroup(groupId: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(-groupId, signal);
  } catch (error) {
    // EPERM: there is somebody, but with other rights (a set-user-id program). Not gone, only out of reach.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Whether anybody of the group still does something. */
export function isGroupAlive(groupId: number): boolean {
  try {
    process.kill(-groupId, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  // A signal also finds zombies, and an orphan may stay one for a second and more.
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
let list: { atMs: number; everybody: ProcessEntry[] | undefined } = { atMs: 0, everybody: [] };

/**
 * One look for all groups that are being stopped: a hundred stubborn children are not a hundred lists. A list that is a
 * moment old may say "alive" (somebody asks again soon), but never "gone": the group may be younger than the list.
 */
function recentProcesses(): ProcessEntry[] | undefined {
  return performance.now() - list.atMs <= LIST_AGE_MS_MAX ? list.everybody : [];
}

function freshProcesses(): ProcessEntry[] | undefined {
  list = { atMs: performance.now(), everybody: listProcesses() };
  return list.everybody;
}

/** Where there is no list, what a signal finds counts as alive. */
const livesIn = (groupId: number, everybody: ProcessEntry[] | undefined): boolean =>
  everybody?.some((entry) => entry.groupId === groupId && isAlive(entry)) ?? true;
