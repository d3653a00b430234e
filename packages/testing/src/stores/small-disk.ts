import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";

/** A file system of its own, small enough to be filled. */
export interface SmallDisk {
  readonly directory: string;
  /** Until not a byte is left. */
  fill(): Promise<void>;
  /** Gives back what `fill` took. */
  free(): void;
  /** With everything that is on it. */
  discard(): void;
}

/** By this name the table of mounts knows them. */
const SOURCE = "tenure-tests";

/** In memory, mounted at this directory. Undefined where nobody may mount: that takes root, and not every root may. */
export function createSmallDisk(directory: string, megabytes: number): SmallDisk | undefined {
  mkdirSync(directory, { recursive: true });
  const options = `size=${megabytes}m,mode=0755`;
  if (!tried("mount", "-t", "tmpfs", "-o", options, SOURCE, directory)) return undefined;
  mine.add(directory);
  const ballast = join(directory, "ballast");
  return {
    directory,
    async fill() {
      const file = await open(ballast, "a");
      try {
        while (await wrote(file.write(Buffer.alloc(1 << 20))));
      } finally {
        await file.close();
      }
    },
    free: () => rmSync(ballast, { force: true }),
    discard() {
      mine.delete(directory);
      unmount(directory);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const mine = new Set<string>();

/** Those of this process, when it ends. */
export function unmountMine(): void {
  for (const directory of mine) unmount(directory);
  mine.clear();
}

/** What a run that was killed has left mounted at or below this directory: it could not be removed. */
export function unmountBelow(directory: string): void {
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  for (const [source, at = ""] of mounts.map((line) => line.split(" ")))
    if (source === SOURCE && `${at}/`.startsWith(`${directory}/`)) unmount(at);
}

/** Lazily: a process that was just killed may not have let go yet. */
const unmount = (directory: string): boolean => tried("umount", "--lazy", directory);

async function wrote(writing: Promise<unknown>): Promise<boolean> {
  try {
    await writing;
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOSPC") return false;
    throw error;
  }
}

function tried(command: string, ...args: string[]): boolean {
  try {
    execFileSync(command, args, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
