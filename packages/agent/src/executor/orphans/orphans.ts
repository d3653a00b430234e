import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTick, setTimeout as wait } from "node:timers/promises";
import { isRunAsUid, type RunAs } from "../../run-as.ts";
import { orphanMark } from "../child/environment.ts";
import { groupGone, signalGroup } from "../child/group.ts";
import { isAlive, isStillAlive, readEnvironment, readProcess, readUid } from "../child/proc.ts";
import type { Directories } from "../data-directory/directories.ts";
import { AGENT_LOCK, readHolder } from "../data-directory/locks.ts";
import type { Cgroups } from "./cgroups.ts";

/**
 * Kills orphans: processes of a deployment that left its process group, found by their cgroup where there is one and by
 * their environment. Safe against reuse of pids: a process is killed only if it carries the mark of this data directory.
 */
export interface Orphans {
  /** Kills the orphans of one deployment, and those that they start meanwhile. Returns how many there were. */
  kill(deploymentId: string): Promise<number>;
  killAll(): Promise<number>;
}

const ROUNDS_MAX = 20;
const ROUND_MS = 20;

export function createOrphans(workDirectory: string, cgroups: Cgroups): Orphans {
  const scan = shareNextRun(async () => [
    ...(await findMarked(orphanMark(workDirectory))),
    ...cgroups.members().filter(({ pid }) => isRunning(pid)),
  ]);

  async function killWhere(isMeant: (deploymentId: string) => boolean): Promise<number> {
    const killed = new Set<number>();
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const found = (await scan()).filter(({ deploymentId }) => isMeant(deploymentId));
      if (found.length === 0) break;
      for (const deploymentId of new Set(found.map((one) => one.deploymentId)))
        cgroups.kill(deploymentId);
      for (const { pid } of found) {
        killed.add(pid);
        kill(pid);
      }
      await wait(ROUND_MS);
    }
    return killed.size;
  }

  return {
    kill: (deploymentId) => killWhere((found) => found === deploymentId),
    killAll: () => killWhere(() => true),
  };
}

const GONE_MS = 10_000;

/**
 * Kills what a former agent of this data directory left running, for when its guard was killed with it. The locks name the
 * process groups and the start time of their first process, because the pid may belong to another process by now. A child
 * can write to its lock and name another process there, so with `runAs` only processes of those users are killed.
 */
export async function killFormerChildren(
  directories: Directories,
  orphans: Orphans,
  runAs?: RunAs,
): Promise<number> {
  const names = (await readdir(directories.run)).filter((name) => name.endsWith(".lock"));
  const leaders = names
    .filter((name) => name !== AGENT_LOCK)
    .map((name) => readHolder(join(directories.run, name)))
    .filter((holder) => holder !== undefined)
    .filter(isStillAlive)
    .filter(({ pid }) => !runAs || isRunAsUid(runAs, readUid(pid) ?? 0));
  await Promise.all(
    leaders.map(async (leader) => {
      signalGroup(leader.pid, "SIGKILL");
      await groupGone(leader.pid, GONE_MS);
    }),
  );
  return leaders.length + (await orphans.killAll());
}

interface Marked {
  pid: number;
  deploymentId: string;
}

/** Files read synchronously between two ticks: one by one took ten times as long, all at once block the event loop. */
const READ_AT_ONCE = 50;

/** Finds processes by the environment they were started with, if this user may read it. Finds none without /proc. */
async function findMarked(mark: string): Promise<Marked[]> {
  const names = await readdir("/proc").catch(() => []);
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  const found: Marked[] = [];
  for (let first = 0; first < pids.length; first += READ_AT_ONCE) {
    found.push(...pids.slice(first, first + READ_AT_ONCE).flatMap((pid) => markedBy(mark, pid)));
    await nextTick();
  }
  return found;
}

function markedBy(mark: string, pid: number): Marked[] {
  const variable = readEnvironment(pid).find((one) => one.startsWith(mark));
  if (variable === undefined || !isRunning(pid)) return [];
  return [{ pid, deploymentId: variable.slice(mark.length) }];
}

function isRunning(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && isAlive(entry);
}

/** Callers during a run share the next run: the present one may have missed the process they mean. */
function shareNextRun<T>(run: () => Promise<T>): () => Promise<T> {
  let present: Promise<T> | undefined;
  let next: Promise<T> | undefined;

  async function start(): Promise<T> {
    present = run().finally(() => {
      present = undefined;
    });
    return present;
  }

  return () => {
    if (!present) return start();
    next ??= present
      .catch(() => {})
      .then(() => {
        next = undefined;
        return start();
      });
    return next;
  };
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}
