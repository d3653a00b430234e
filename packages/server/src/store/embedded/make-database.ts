import { fork } from "node:child_process";
import { existsSync, renameSync, rmSync } from "node:fs";
import { builtFile } from "./built-file.ts";
import type { DirectoryLock } from "./directory-lock.ts";

/**
 * Makes the database of `directory` if there is none: in a process of its own, beside its place, and moved there when it is
 * complete. A first start that is killed leaves nothing half-made.
 *
 * The process inherits the lock of the data directory. It ends with this one, but some milliseconds later: until then no
 * other server may begin to make the same database.
 */
export async function makeDatabase(directory: string, lock: DirectoryLock): Promise<void> {
  if (existsSync(directory)) return;
  const unfinished = `${directory}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  await runInit(unfinished, lock);
  renameSync(unfinished, directory);
}

function runInit(directory: string, lock: DirectoryLock): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = fork(builtFile("pglite-init.js"), [directory], {
      stdio: ["ignore", "ignore", "ignore", "ipc", lock.fd],
      execArgv: [],
    });
    let reason: string | undefined;
    child.once("error", reject);
    child.on("message", ({ error }: { error: string }) => {
      reason = error;
    });
    // After its messages: "exit" may come before them.
    child.once("close", (code, signal) => {
      if (code === 0) return resolve();
      reject(new Error(reason ?? `the process that makes the database ended (${signal ?? code})`));
    });
  });
}
