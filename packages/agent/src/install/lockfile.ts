import { existsSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";

const LOCKFILES = ["npm-shrinkwrap.json", "package-lock.json"];

/** Whether a package pins the versions of its dependencies. */
export const shipsLockfile = (packageDirectory: string): boolean =>
  LOCKFILES.some((name) => existsSync(join(packageDirectory, name)));

/**
 * Removes the packages installed beside a package whose dependencies, by its lockfile, are inside it: a newer version beside
 * it would be used in place of one that is missing.
 */
export async function removeNeighbours(nodeModules: string, name: string): Promise<void> {
  const [first = "", second] = name.split("/");
  const keep = [first, ".bin"];
  for (const entry of await readdir(nodeModules))
    if (!keep.includes(entry)) await rm(join(nodeModules, entry), { recursive: true, force: true });
  if (second !== undefined)
    for (const entry of await readdir(join(nodeModules, first)))
      if (entry !== second)
        await rm(join(nodeModules, first, entry), { recursive: true, force: true });
  await removeDeadLinks(join(nodeModules, ".bin"));
}

async function removeDeadLinks(directory: string): Promise<void> {
  for (const entry of await readdir(directory).catch(() => [])) {
    const path = join(directory, entry);
    if (!existsSync(path)) await rm(path, { force: true });
  }
}
