import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readlinkSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { identify, type ProcessIdentity } from "./processes/proc.ts";

/**
 * Where the tests keep their files: one directory per user below the temporary directory.
 *
 *   run/<owner>/       what one process has made; removed when that process ends
 *   run/<owner>/pids/  the processes it has started (registry.ts)
 *   cache/             programs that were brought; kept for the next run
 *
 * Not in the repository: the clone may belong to somebody else, or lie below a home directory that
 * the user Postgres runs as cannot enter.
 */
export function scratchRoot(): string {
  const uid = process.getuid?.() ?? 0;
  const root = makeOpenDirectory(join(openTemporaryDirectory(uid), `tenure-tests-${uid}`));
  const { uid: owner } = lstatSync(root);
  // The name can be guessed: whoever else made it could change the programs we are about to run.
  if (owner !== uid) throw new Error(`${root} belongs to user ${owner}: remove it or set TMPDIR.`);
  return root;
}

/** A new empty directory (mode 0700) that is removed when this process has ended. */
export function scratchDirectory(name: string): string {
  return mkdtempSync(join(ownerDirectory(), `${name}-`));
}

export function cacheDirectory(): string {
  return makeOpenDirectory(join(scratchRoot(), "cache"));
}

export function runsDirectory(): string {
  return makeOpenDirectory(join(scratchRoot(), "run"));
}

export function ownerDirectory(): string {
  return makeOpenDirectory(directoryOf(identify(process.pid) as ProcessIdentity));
}

/** Its name says who the owner is, so that a later run can tell whether it is dead. */
export function directoryOf({ pid, startTicks }: ProcessIdentity): string {
  return join(runsDirectory(), `${pid}.${startTicks}.${pidNamespace()}`);
}

/** Undefined for an owner of another container that shares this temporary directory. */
export function parseOwnerName(name: string): ProcessIdentity | undefined {
  const [pid, startTicks, namespace] = name.split(".");
  if (namespace !== pidNamespace()) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}

function pidNamespace(): string {
  return readlinkSync("/proc/self/ns/pid").replace(/\D/g, "");
}

/** Root's TMPDIR may be closed to the user Postgres will run as; /tmp is open to everybody. */
function openTemporaryDirectory(uid: number): string {
  const preferred = tmpdir();
  return uid === 0 && !isOpenToAll(preferred) ? "/tmp" : preferred;
}

function isOpenToAll(directory: string): boolean {
  const enterable = (statSync(directory).mode & 0o001) !== 0;
  return enterable && (dirname(directory) === directory || isOpenToAll(dirname(directory)));
}

function makeOpenDirectory(directory: string): string {
  mkdirSync(directory, { recursive: true });
  const { uid, mode } = lstatSync(directory);
  // A strict umask must not close it to the user Postgres runs as.
  if (uid === process.getuid?.() && (mode & 0o755) !== 0o755) chmodSync(directory, 0o755);
  return directory;
}
