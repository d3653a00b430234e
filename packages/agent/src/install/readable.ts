import type { Stats } from "node:fs";
import { chmod, lstat } from "node:fs/promises";
import { walk } from "../walk.ts";

/** Lets every user read and execute what the owner can, from a directory down. The directories above it restrict access. */
export async function makeReadable(directory: string): Promise<void> {
  await openOne(directory, await lstat(directory));
  for await (const { path, stat } of walk(directory)) await openOne(path, stat);
}

async function openOne(path: string, stat: Stats): Promise<void> {
  if (!stat.isFile() && !stat.isDirectory()) return;
  const rights = stat.mode & 0o500;
  const wanted = stat.mode | (rights >> 3) | (rights >> 6);
  if (wanted !== stat.mode) await chmod(path, wanted);
}
