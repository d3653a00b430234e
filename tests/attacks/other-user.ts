import { execFile } from "node:child_process";
import { chmodSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { unprivilegedUser } from "@tenure/testing/processes/run-as";
import { scratchDirectory } from "@tenure/testing/scratch";

/** Another user of this machine; `undefined` unless the tests run as root. */
export const otherUser = unprivilegedUser();

/** What a shell command of the other user prints, errors included. */
export async function asOther(script: string, ...args: string[]): Promise<string> {
  const rights = otherUser && { uid: otherUser.uid, gid: otherUser.gid };
  const options = { cwd: "/", maxBuffer: 16 * 1024 * 1024, ...rights };
  const shell = promisify(execFile)("/bin/sh", ["-c", script, "sh", ...args], options);
  const { stdout, stderr } = await shell.catch((error) => error);
  return `${stdout}${stderr}`;
}

/** A new directory that every user may enter, as a home directory or a mounted volume often is. */
export function openDirectory(name: string): string {
  const directory = scratchDirectory(name);
  chmodSync(directory, 0o755);
  return directory;
}

/** Files and directories from here down that other users have any right to, with their modes. */
export function openToOthers(path: string): string[] {
  const stat = statSync(path);
  const own = (stat.mode & 0o077) === 0 ? [] : [`${(stat.mode & 0o777).toString(8)} ${path}`];
  if (!stat.isDirectory()) return own;
  return [...own, ...readdirSync(path).flatMap((name) => openToOthers(join(path, name)))];
}
