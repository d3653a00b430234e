import { execFileSync } from "node:child_process";
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

/** What is measured or tried here, with a word when there is more than the commit. */
export function commitNow(): string {
  try {
    const git = (...args: string[]) =>
      execFileSync("git", args, { cwd: repositoryRoot, encoding: "utf8" }).trim();
    const changed = git("status", "--porcelain", "--untracked-files=no") !== "";
    return `${git("rev-parse", "--short", "HEAD")}${changed ? " and changes" : ""}`;
  } catch {
    return "unknown";
  }
}
