import { closeSync, fstatSync, openSync, readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/** What `tenure dev` leaves for the programs of its own user: which process it is, and where its token is. */
export interface DevPointer {
  pid: number;
  token_file: string;
}

const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];
const OTHERS = 0o077;

/** Where the `tenure dev` of a URL leaves its pointer; `undefined` for a URL that is not on this machine. */
export function devPointerPath(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { hostname, port } = new URL(url);
  if (!LOOPBACK.includes(hostname)) return undefined;
  const directory = process.env.XDG_RUNTIME_DIR || join(homedir(), ".cache");
  return join(directory, "tenure-dev", `${port || "80"}.json`);
}

/**
 * The token of the `tenure dev` that runs at this URL as the same user. `undefined` when there is none, when its process has
 * ended (another program may have the port now), or when another user could have written or read a file on the way.
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

/** Throws unless the file is this user's own and closed to others. */
export function readPrivate(path: string): string {
  const fd = openSync(path, "r");
  try {
    if (!isPrivate(fstatSync(fd))) throw new Error(`${path} is open to other users, or another's`);
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

const isPrivate = ({ uid, mode }: { uid: number; mode: number }): boolean =>
  uid === (process.geteuid?.() ?? uid) && (mode & OTHERS) === 0;
