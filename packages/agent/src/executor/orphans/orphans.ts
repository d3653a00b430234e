import { readdir } from "node:fs/promises";
import { setImmediate as nextTurn, setTimeout as wait } from "node:timers/promises";
import { strayMark } from "../child/environment.ts";
import { isAlive, readEnvironment, readProcess } from "../child/proc.ts";
import type { Cgroups } from "./cgroups.ts";

/** Finds processes of a deployment that left its process group: by its cgroup where there is one, and by their environment. */
export interface Strays {
  /** Kills them, and whatever they start meanwhile. Answers how many there were. */
  end(deploymentId: string): Promise<number>;
  endAll(): Promise<number>;
}

const ROUNDS_MAX = 20;
const ROUND_MS = 20;

export function createStrays(workDirectory: string, cgroups: Cgroups): Strays {
  const look = shareLooks(async () => [
    ...(await findMarked(strayMark(workDirectory))),
    ...cgroups.members().filter(({ pid }) => isRunning(pid)),
  ]);

  async function endWhere(isMeant: (deploymentId: string) => boolean): Promise<number> {
    const ended = new Set<number>();
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const meant = (await look()).filter(({ deploymentId }) => isMeant(deploymentId));
      if (meant.length === 0) break;
      for (const deploymentId of new Set(meant.map((one) => one.deploymentId)))
        cgroups.kill(deploymentId);
      for (const { pid } of meant) {
        ended.add(pid);
        kill(pid);
      }
      await wait(ROUND_MS);
    }
    return ended.size;
  }

  return {
    end: (deploymentId) => endWhere((found) => found === deploymentId),
    endAll: () => endWhere(() => true),
  };
}

interface Marked {
  pid: number;
  deploymentId: string;
}

/** Read in one go a few at a time: waiting for each file took ten times as long, all of them at once hold up the rest. */
const READ_AT_ONCE = 50;

/** By the environment they were started with, of everybody whose we may read. Nobody where there is no /proc. */
async function findMarked(mark: string): Promise<Marked[]> {
  const names = await readdir("/proc").catch(() => []);
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  const found: Marked[] = [];
  for (let first = 0; first < pids.length; first += READ_AT_ONCE) {
    found.push(...pids.slice(first, first + READ_AT_ONCE).flatMap((pid) => markedBy(mark, pid)));
    await nextTurn();
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

/** Everybody who asks while a look is under way shares the next one: the present one may have missed what he means. */
function shareLooks<T>(look: () => Promise<T>): () => Promise<T> {
  let present: Promise<T> | undefined;
  let next: Promise<T> | undefined;

  async function begin(): Promise<T> {
    present = look().finally(() => {
      present = undefined;
    });
    return present;
  }

  return () => {
    if (!present) return begin();
    next ??= present
      .catch(() => {})
      .then(() => {
        next = undefined;
        return begin();
      });
    return next;
  };
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // gone by itself
  }
}
