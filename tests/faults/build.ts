import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";

/** Packages as they are built: here, at another commit, or in a copy that was broken on purpose. */
export interface Build {
  /** For the output: a commit, or what is special about it. */
  name: string;
  /** Has `packages/`. */
  root: string;
  /** Has `tests/`. The programs there use the SDK beside them. */
  programs: string;
}

/** One protection taken out: in `file`, what stands there, and what stands there instead. */
export interface Edit {
  /** Below `packages/`. */
  file: string;
  protection: string;
  instead: string;
  /** How often it stands there; once, if not said. */
  times?: number;
}

export const ownBuild: Build = {
  name: "this checkout",
  root: repositoryRoot,
  programs: repositoryRoot,
};

export const serverDirectoryOf = ({ root }: Build): string => join(root, "packages/server/dist");
export const commandOf = ({ root }: Build): string => join(root, "packages/cli/bin/tenure.js");

/**
 * A copy of the build with a bug in it. The product itself has no switch that turns a protection off; what is run is
 * what is shipped, but for the edit. An edit that no longer fits is an error: else the suite would be shown to catch a
 * bug that is not there.
 */
export function breakBuild(edits: readonly Edit[]): Build {
  const root = scratchDirectory("planted");
  for (const name of readdirSync(join(repositoryRoot, "packages")))
    for (const part of PARTS) {
      const source = join(repositoryRoot, "packages", name, part);
      if (existsSync(source))
        cpSync(source, join(root, "packages", name, part), { recursive: true });
    }
  linkModules(root);
  bringPrograms(root);
  for (const edit of edits) {
    const path = join(root, "packages", edit.file);
    writeFileSync(path, applyEdit(readFileSync(path, "utf8"), edit));
  }
  return { name: "planted", root, programs: root };
}

export function applyEdit(text: string, { file, protection, instead, times = 1 }: Edit): string {
  const found = text.split(protection).length - 1;
  if (found !== times)
    throw new Error(`the protection to take out is ${found} times in ${file}: ${protection}`);
  return text.replaceAll(protection, () => instead);
}

const PARTS = ["package.json", "dist", "bin", "testing/failpoints.js"];

/** Everything installed is shared; our own packages are the copy's. */
export function linkModules(root: string): void {
  const modules = join(repositoryRoot, "node_modules");
  mkdirSync(join(root, "node_modules", "@tenure"), { recursive: true });
  for (const name of readdirSync(modules))
    if (name !== "@tenure") symlinkSync(join(modules, name), join(root, "node_modules", name));
  for (const name of readdirSync(join(root, "packages")))
    symlinkSync(join(root, "packages", name), join(root, "node_modules", "@tenure", name));
}

const PROGRAMS = [
  "package-lock.json",
  "packages/testing/package.json",
  "packages/testing/dist",
  "tests/dist",
  "tests/faults/children",
  "tests/prove/inbox-instance.js",
];

/** Copies the suite's own programs beside another build. A commit keeps those that know its server from inside. */
export function bringPrograms(root: string): void {
  for (const path of PROGRAMS) {
    const target = join(root, path);
    const isItsOwn = path.endsWith(".js") && existsSync(target);
    if (!isItsOwn) cpSync(join(repositoryRoot, path), target, { recursive: true });
  }
  const link = join(root, "node_modules/@tenure/testing");
  if (!existsSync(link)) symlinkSync(join(root, "packages/testing"), link);
}
