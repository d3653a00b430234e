import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type Build, bringPrograms, linkModules } from "./build.ts";

/** Release 0.1.0: version n beside the checkout's n+1. */
export const RELEASE = "2783eb4";

/** The commit cannot be built here. The message is one sentence that says what to do. */
export class CommitMissing extends Error {}

/**
 * Builds the packages as they were at a commit of this repository, in a directory that goes with this process. The
 * suite's own programs are this checkout's; there they run with the SDK of that commit.
 */
export function buildAt(commit: string, { repository = repositoryRoot } = {}): Build {
  const git = createGit(repository);
  const sha = resolve(git, commit);
  const root = scratchDirectory("commit");
  const archive = git("archive", "--format=tar", sha);
  execFileSync("tar", ["-x", "-C", root], { input: archive });
  if (isInstalledHere(join(root, "package-lock.json"))) linkModules(root);
  else execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: root, stdio: "pipe" });
  execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "pipe" });
  bringPrograms(root);
  return { name: sha.slice(0, 7), root, programs: root };
}

type Git = (...args: string[]) => Buffer;

function resolve(git: Git, commit: string): string {
  try {
    return git("rev-parse", "--verify", "--quiet", `${commit}^{commit}`).toString().trim();
  } catch {
    const isShallow = git("rev-parse", "--is-shallow-repository").toString().trim() === "true";
    throw new CommitMissing(
      isShallow
        ? `commit ${commit} is not in this clone, which is shallow: run git fetch --unshallow first`
        : `commit ${commit} is not in the history of this clone`,
    );
  }
}

function createGit(cwd: string): Git {
  const options = { cwd, maxBuffer: 256 * 1024 * 1024 };
  return (...args) => execFileSync("git", args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
}

type Lock = { packages: Record<string, { version?: string; link?: boolean }> };

/** Whether everything that lock file asks for is what this checkout has. Our own packages do not count. */
function isInstalledHere(lockFile: string): boolean {
  const read = (file: string) => (JSON.parse(readFileSync(file, "utf8")) as Lock).packages;
  const here = read(join(repositoryRoot, "package-lock.json"));
  return Object.entries(read(lockFile))
    .filter(([path, { link }]) => path.startsWith("node_modules/") && !link)
    .every(([path, { version }]) => here[path]?.version === version);
}
