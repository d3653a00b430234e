import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Found by its lock file, so that the sources and the build of these files both find it. */
export const repositoryRoot = ancestorWith("package-lock.json");

function ancestorWith(file: string): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(directory, file))) {
    const parent = dirname(directory);
    if (parent === directory) throw new Error(`no directory above this file has a ${file}`);
    directory = parent;
  }
  return directory;
}
