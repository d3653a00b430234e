import { closeSync, fstatSync, openSync, readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/** The file that `tenure dev` writes for the programs of its user: its process id and its token file. */
export interface DevPointer {
  pid: number;
  token_file: string;
}

const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];
const OTHERS = 0o077;

/** The path of that file for a URL; `undefined` for a URL that is not on this machine. */
export function devPointerPath(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { hostname, port } = new URL(url);
  if (!LOOPBACK.includes(hostname)) return undefined;
  const directory = process.env.XDG_RUNTIME_DIR || join(homedir(), ".cache");
  return join(directory, "tenure-dev", `${port || "80"}.json`);
}

/**
 * Finds the token of the `tenure dev` that runs at this URL as the same user. `undefined` when there is none, when its process
 * has ended (another program may have the port now), or when other users have access to one of the files.
 */
export function findDevToken(url: string): string | undefined {
  const path = devPointerPath(url);
  if (path === undefined) return undefined;
  try {
    if (!isPrivate(statSync(dirname(path)))) return undefined;
    const { pid, token_file } = JSON.parse(readPrivate(path)) as DevPointer;
    process.kill(pid, 0);
    return readPrivate(token_file).trim() || undefined;
  } catch {
    return undefined;
  }
}

/** Reads a file. Throws unless it belongs to this user and is closed to others. */
export function readPrivate(path: string): string {
  const fd = openSync(path, "r");
  try {
    if (!isPrivate(fstatSync(fd)))
      throw new Error(`${path} must belong to this user and be closed to others`);
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

const isPrivate = ({ uid, mode }: { uid: number; mode: number }): boolean =>
  uid === (process.geteuid?.() ?? uid) && (mode & OTHERS) === 0;
