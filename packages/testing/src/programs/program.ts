import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { User } from "../processes/run-as.ts";

/** A directory of programs, and what they need in their environment. */
export interface ProgramDirectory {
  directory: string;
  /** Where they came from, in words for the reader of the test's output. */
  origin: string;
  env: Record<string, string>;
}

/** Asked of the program itself, as the user who will run it: that settles every question of rights. */
export async function versionOf(
  program: string,
  { env = {}, user }: { env?: Record<string, string>; user?: User | undefined },
): Promise<string | undefined> {
  const rights = user && { uid: user.uid, gid: user.gid };
  const run = promisify(execFile)(program, ["--version"], { env, cwd: "/", ...rights });
  const { stdout } = await run.catch(() => ({ stdout: "" }));
  return /\d+(\.\d+)*/.exec(stdout)?.[0];
}

export function isAtLeast(version: string, minimum: string): boolean {
  const have = version.split(".").map(Number);
  const need = minimum.split(".").map(Number);
  const differing = need.findIndex((part, index) => part !== (have[index] ?? 0));
  return differing === -1 || (have[differing] ?? 0) > (need[differing] ?? 0);
}
