import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import fsx from "fs-native-extensions";

export interface DirectoryLock {
  /** The open file. A child process that inherits it has the lock too, until both have closed it. */
  readonly fd: number;
  release(): void;
}

/**
 * Takes the directory for this process, or throws with the process that has it.
 *
 * A lock of the kernel on an open file, not a file that merely exists: it ends with the process however
 * that ends, so nothing stale is ever left to be judged. The embedded Postgres has no lock of its own, and
 * a second opener destroys what the first one acknowledged.
 */
export function lockDirectory(directory: string): DirectoryLock | { heldBy: string } {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, "lock");
  const fd = openSync(path, "a+", 0o600);
  if (!fsx.tryLock(fd)) {
    closeSync(fd);
    return { heldBy: readFileSync(path, "utf8").trim() || "unknown" };
  }
  ftruncateSync(fd);
  writeSync(fd, `pid ${process.pid}\n`);
  return { fd, release: () => closeSync(fd) };
}
