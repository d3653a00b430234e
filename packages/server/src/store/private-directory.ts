import { chmodSync, lstatSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

const OTHERS = 0o077;

/**
 * Makes a directory that only this process's user can enter, or closes an existing one: it holds the `env` of every
 * deployment, and other users who could write to it could change what the nodes run. Returns the mode of a directory
 * that had to be closed. Throws when it belongs to another user, who could open it again at any time.
 */
export function makePrivateDirectory(directory: string): number | undefined {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const { uid, mode } = statSync(directory);
  const ownUid = process.geteuid?.() ?? uid;
  if (uid !== ownUid)
    throw new Error(
      `the data directory ${directory} belongs to user ${uid}, and this server runs as user ${ownUid}; ` +
        `set data_dir to a directory of this server's own, such as ${join(directory, "data")}, or chown it`,
    );
  if ((mode & OTHERS) === 0) return undefined;
  chmodSync(directory, mode & 0o700);
  return mode & 0o777;
}

/** Takes the rights of other users from a file, or from a directory and everything below it. Links are not followed. */
export function closeTree(path: string): void {
  const stat = lstatSync(path);
  if (!stat.isFile() && !stat.isDirectory()) return;
  if ((stat.mode & OTHERS) !== 0) chmodSync(path, stat.mode & 0o700);
  if (stat.isDirectory()) for (const name of readdirSync(path)) closeTree(join(path, name));
}
