import { renameSync, rmSync } from "node:fs";
import { readdir, rm, rmdir, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import type { Installer } from "../../install/installer.ts";
import { removePipes } from "../child/pipes.ts";
import type { ExecutorLog } from "../contract.ts";
import type { Directories } from "./directories.ts";
import { lockPath, tryLock } from "./locks.ts";

export interface HousekeepingOptions {
  directories: Directories;
  installer: Installer;
  isPackageDesired(directoryName: string): boolean;
  isDesired(deploymentId: string): boolean;
  /** False until a list was read: before that nothing is known to be unused. */
  isInformed(): boolean;
  /** How long the files of a deployment stay that is not desired here; 0: always. */
  workKeepDays: number;
  log(line: ExecutorLog): void;
}

/** Long after the start: by then a list was read. */
const EVERY_MS = 60 * 60_000;
const REMOVING = ".removing-";
const DAY_MS = 24 * 60 * 60_000;
/** The server deletes the reports of former owners after the same time, and then requests no log of them. */
const UNUSED_AFTER_MS = 7 * DAY_MS;

/** Removes every hour the packages, logs and files of deployments that are not desired here. */
export function startHousekeeping(options: HousekeepingOptions): { stop(): void } {
  const timer = setInterval(() => {
    if (!options.isInformed()) return;
    void removeUnused(options).catch(onHousekeepingFailed(options.log));
  }, EVERY_MS);
  timer.unref();
  return { stop: () => clearInterval(timer) };
}

export const onHousekeepingFailed =
  (log: (line: ExecutorLog) => void) =>
  (error: Error): void =>
    log({
      level: "warn",
      event: "housekeeping.failed",
      message: "could not remove unused packages and logs; will retry",
      details: { reason: error.message },
    });

export async function removeUnused(
  {
    directories,
    installer,
    isDesired,
    isPackageDesired,
    workKeepDays,
  }: Omit<HousekeepingOptions, "log" | "isInformed">,
  unusedAfterMs = UNUSED_AFTER_MS,
): Promise<void> {
  await installer.removeUnused(isPackageDesired);
  if (workKeepDays > 0) await removeOldWork(directories.work, workKeepDays, isDesired);
  const isOld = async (path: string): Promise<boolean> =>
    Date.now() - (await stat(path)).mtimeMs > unusedAfterMs;
  for (const id of await readdir(directories.logs)) {
    const log = join(directories.logs, id);
    if (isDesired(id) || !(await isOldLog(log, isOld))) continue;
    await rm(log, { recursive: true, force: true });
    // Fails unless it is empty: files of a deployment stay for NODE_UNIT_WORK_KEEP_DAYS.
    await rmdir(join(directories.work, id)).catch(() => {});
    removeFreeLock(directories, id);
    removePipes(join(directories.run, id));
  }
}

/** The mtime of a directory is the time its deployment was last desired here, as with packages. */
async function removeOldWork(
  work: string,
  keepDays: number,
  isDesired: (deploymentId: string) => boolean,
): Promise<void> {
  for (const id of await readdir(work)) {
    const path = join(work, id);
    const now = new Date();
    const { mtimeMs } = await stat(path);
    if (isDesired(id)) await utimes(path, now, now).catch(() => {});
    else if (now.getTime() - mtimeMs > keepDays * DAY_MS) {
      // Renamed first, synchronously: a child may be started while the files are deleted.
      const away = id.startsWith(REMOVING) ? path : join(work, `${REMOVING}${id}`);
      if (away !== path) renameSync(path, away);
      await rm(away, { recursive: true, force: true });
    }
  }
}

/** The newest file has the time of the last output; the mtime of a directory changes only with its entries. */
async function isOldLog(
  directory: string,
  isOld: (path: string) => Promise<boolean>,
): Promise<boolean> {
  const paths = (await readdir(directory)).map((name) => join(directory, name));
  const verdicts = await Promise.all([directory, ...paths].map(isOld));
  return verdicts.every((verdict) => verdict);
}

/** A lock that is held stays: deleting it would let a second process lock a new file of the same name. */
function removeFreeLock(directories: Directories, id: string): void {
  const path = lockPath(directories, id);
  const lock = tryLock(path);
  if (!lock) return;
  rmSync(path, { force: true });
  lock.release();
}
