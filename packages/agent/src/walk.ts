import type { Stats } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";

/** Walks all entries below a directory. Links are included but not followed, because they may lead anywhere. */
export async function* walk(directory: string): AsyncGenerator<{ path: string; stat: Stats }> {
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const stat = await lstat(path);
    yield { path, stat };
    if (stat.isDirectory()) yield* walk(path);
  }
}
