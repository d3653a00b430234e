import { renameSync, rmSync } from "node:fs";
import { readdir, rm, rmdir, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import type { Installer } from "../../install/installer.ts";
import { removePipes } from "../child/pipes.ts";
import type { ExecutorLog } from "../contract.ts";
import { lockPath } from "../orphans/former-children.ts";
import type { Directories } from "./directories.ts";
import { tryLock } from "./locks.ts";

export interface HousekeepingOptions {
  directories: Directories;
  installer: Installer;
  isWantedPackage(directoryName: string): boolean;
  isWanted(deploymentId: string): boolean;
  /** False until a list was read: before that nothing is known to be unwanted. */
  isInformed(): boolean;
  /** How long files of a deployment stay that is not wanted here; 0: for ever. */
  workKeepDays: number;
  log(line: ExecutorLog): void;
}

/** Long after the start: by then it is known what is wanted. */
const EVERY_MS = 60 * 60_000;
/** The server forgets what former owners said after the same time, and then asks nobody for these logs. */
const REMOVING = ".removing-";
const DAY_MS = 24 * 60 * 60_000;
const UNUSED_AFTER_MS = 7 * DAY_MS;

/** Removes now and then what belongs to nothing that is wanted here. */
export function startHousekeeping(options: HousekeepingOptions): { stop(): void } {
  const timer = setInterval(() => {
    if (!options.isInformed()) return;
    void keepHouse(options).catch(onHousekeepingFailed(options.log));
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
      message: "old packages and logs could not be removed; it is tried again",
      details: { reason: error.message },
    });

export async function keepHouse(
  {
    directories,
    installer,
    isWanted,
    isWantedPackage,
    workKeepDays,
  }: Omit<HousekeepingOptions, "log" | "isInformed">,
  unusedAfterMs = UNUSED_AFTER_MS,
): Promise<void> {
  await installer.removeUnused(isWantedPackage);
  if (workKeepDays > 0) await removeOldWork(directories.work, workKeepDays, isWanted);
  const isOld = async (path: string): Promise<boolean> =>
    Date.now() - (await stat(path)).mtimeMs > unusedAfterMs;
  for (const id of await readdir(directories.logs)) {
    const log = join(directories.logs, id);
    if (isWanted(id) || !(await isOldLog(log, isOld))) continue;
    await rm(log, { recursive: true, force: true });
    // Only when it is empty: what a deployment has written stays for as long as the setting says.
    await rmdir(join(directories.work, id)).catch(() => {});
    removeFreeLock(directories, id);
    removePipes(join(directories.run, id));
  }
}

/** The time of a directory says when its deployment was last wanted here, as with packages. */
async function removeOldWork(
  work: string,
  keepDays: number,
  isWanted: (deploymentId: string) => boolean,
): Promise<void> {
  for (const id of await readdir(work)) {
    const path = join(work, id);
    const now = new Date();
    const { mtimeMs } = await stat(path);
    if (isWanted(id)) await utimes(path, now, now).catch(() => {});
    else if (now.getTime() - mtimeMs > keepDays * DAY_MS) {
      // Out of the way in the same moment as it is unwanted: its child may be started while the files go.
      const away = id.startsWith(REMOVING) ? path : join(work, `${REMOVING}${id}`);
      if (away !== path) renameSync(path, away);
      await rm(away, { recursive: true, force: true });
    }
  }
}

/** The newest file tells when the child last said something; a directory knows only when a file was added. */
async function isOldLog(
  directory: string,
  isOld: (path: string) => Promise<boolean>,
): Promise<boolean> {
  const paths = (await readdir(directory)).map((name) => join(directory, name));
  const verdicts = await Promise.all([directory, ...paths].map(isOld));
  return verdicts.every((verdict) => verdict);
}

/** A lock that somebody holds stays: his process would be locked out of a file that no longer has a name. */
function removeFreeLock(directories: Directories, id: string): void {
  const path = lockPath(directories, id);
  const lock = tryLock(path);
  if (!lock) return;
  rmSync(path, { force: true });
  lock.release();
}
