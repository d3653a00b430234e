import { readdir, readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { strayMark } from "./environment.ts";
import { isAlive, readProcess } from "./proc.ts";

/** Finds processes of a deployment by their environment: also those that left their process group. */
export interface Strays {
  /** Kills them, and whatever they start meanwhile. Answers how many there were. */
  end(deploymentId: string): Promise<number>;
  endAll(): Promise<number>;
}

const ROUNDS_MAX = 20;
const ROUND_MS = 20;

export function createStrays(workDirectory: string): Strays {
  const look = shareLooks(() => findMarked(strayMark(workDirectory)));

  async function endWhere(isMeant: (deploymentId: string) => boolean): Promise<number> {
    const ended = new Set<number>();
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const meant = (await look()).filter(({ deploymentId }) => isMeant(deploymentId));
      if (meant.length === 0) break;
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

/** The environment a process was started with, of everybody whose we may read. Empty where there is no /proc. */
async function findMarked(mark: string): Promise<Marked[]> {
  const names = await readdir("/proc").catch(() => []);
  const found: Marked[] = [];
  for (const name of names.filter((one) => /^\d+$/.test(one))) {
    const pid = Number(name);
    const environment = await readFile(`/proc/${pid}/environ`, "utf8").catch(() => "");
    const marked = environment.split("\0").find((variable) => variable.startsWith(mark));
    const entry = marked === undefined ? undefined : readProcess(pid);
    if (marked !== undefined && entry && isAlive(entry))
      found.push({ pid, deploymentId: marked.slice(mark.length) });
  }
  return found;
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
