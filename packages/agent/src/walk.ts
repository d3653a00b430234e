import type { Stats } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";

/** Everything below a directory. Links are given, and never followed: they may lead anywhere. */
export async function* walk(directory: string): AsyncGenerator<{ path: string; stat: Stats }> {
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const stat = await lstat(path);
    yield { path, stat };
    if (stat.isDirectory()) yield* walk(path);
  }
}
