import { lstat, open, readdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";

/** Written last, when everything it names is on the disk. A package without it is not believed. */
export const LISTING = ".tenure-installed.json";

const AT_ONCE = 32;

/**
 * Syncs every file below a directory and then writes down their sizes: after a power cut the listing is missing, or what
 * it names is there in full.
 */
export async function writeListing(directory: string): Promise<void> {
  const files: Record<string, number> = {};
  await eachOf(await entriesBelow(directory), async ({ path, kind }) => {
    const size = kind === "other" ? 0 : (await lstat(path)).size;
    if (kind === "file") files[relative(directory, path)] = size;
    if (kind !== "other") await sync(path);
  });
  const path = join(directory, LISTING);
  await writeFile(path, JSON.stringify({ files }), { mode: 0o600 });
  await sync(path);
  await sync(directory);
}

/**
 * Why a package is not what was installed; `undefined` when it is. A file may have grown: programs write beside their own
 * code. One that is missing or shorter was damaged.
 */
export async function damageOf(directory: string): Promise<string | undefined> {
  const files = await readListing(directory);
  if (!files) return "it has no listing of what was installed";
  let damage: string | undefined;
  await eachOf(Object.entries(files), async ([path, size]) => {
    const found = await lstat(join(directory, path)).catch(() => undefined);
    if (!found || found.size < size) damage ??= `${path} has ${found?.size ?? 0} of ${size} bytes`;
  });
  return damage;
}

/** In bytes, as installed. Of one without a listing nothing is known. */
export async function installedSize(directory: string): Promise<number> {
  const sizes = Object.values((await readListing(directory)) ?? {});
  return sizes.reduce((sum, size) => sum + size, 0);
}

async function readListing(directory: string): Promise<Record<string, number> | undefined> {
  try {
    const { files } = JSON.parse(await readFile(join(directory, LISTING), "utf8"));
    return typeof files === "object" && files !== null ? files : undefined;
  } catch {
    return undefined;
  }
}

type Kind = "file" | "directory" | "other";

async function entriesBelow(directory: string): Promise<{ path: string; kind: Kind }[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries.map((entry) => ({
    path: join(entry.parentPath, entry.name),
    kind: entry.isFile() ? "file" : entry.isDirectory() ? "directory" : "other",
  }));
}

export async function sync(path: string): Promise<void> {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

async function eachOf<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  for (let first = 0; first < all.length; first += AT_ONCE)
    await Promise.all(all.slice(first, first + AT_ONCE).map(act));
}
