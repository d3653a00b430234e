import { lstat, open, readdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";

/** Written last, when all files it names are on disk. A package without it counts as damaged. */
export const LISTING = ".tenure-installed.json";

const AT_ONCE = 32;

/**
 * Syncs every file below a directory and then writes their sizes: after a power cut either the listing is missing, or all
 * files it names are complete.
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
 * Returns the damage of an installed package, or `undefined`. A file that is missing or shorter is damaged; a longer one is
 * not, because programs write beside their own code.
 */
export async function damageOf(directory: string): Promise<string | undefined> {
  const files = await readListing(directory);
  if (!files) return "the list of its files is missing";
  let damage: string | undefined;
  await eachOf(Object.entries(files), async ([path, size]) => {
    const found = await lstat(join(directory, path)).catch(() => undefined);
    if (!found || found.size < size) damage ??= `${path} has ${found?.size ?? 0} of ${size} bytes`;
  });
  return damage;
}

/** Returns the installed size in bytes; 0 without a listing. */
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
