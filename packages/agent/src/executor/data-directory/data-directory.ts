import type { RunAs } from "../../run-as.ts";
import type { ExecutorLog } from "../contract.ts";
import { type Cgroups, openCgroups } from "../orphans/cgroups.ts";
import { endLeftovers } from "../orphans/former-children.ts";
import { type Guard, startGuard } from "../orphans/guard.ts";
import { createStrays, type Strays } from "../orphans/orphans.ts";
import { type Directories, makeDirectories } from "./directories.ts";
import { lockDataDirectory } from "./locks.ts";
import { checkRunAs } from "./owners.ts";

/** A data directory that belongs to this agent alone, and in which nothing of a former one runs any more. */
export interface TakenDirectory {
  directories: Directories;
  strays: Strays;
  cgroups: Cgroups;
  guard: Guard;
  release(): Promise<void>;
}

/** Throws when the directory cannot be used, or when another agent uses it now. */
export async function takeDirectory(
  dataDir: string,
  log: (line: ExecutorLog) => void,
  runAs?: RunAs,
): Promise<TakenDirectory> {
  const directories = makeDirectories(dataDir, log, runAs);
  if (runAs) await checkRunAs(runAs, directories);
  const lock = await lockDataDirectory(directories.run);
  try {
    const cgroups = openCgroups(directories.root);
    const strays = createStrays(directories.work, cgroups);
    const leftovers = await endLeftovers(directories, strays, runAs);
    if (leftovers > 0)
      log({
        level: "warn",
        event: "leftovers.killed",
        message: "processes that a former agent left running were killed",
        details: { processes: leftovers },
      });
    if (cgroups.directory === undefined)
      log({
        level: "warn",
        event: "cgroups.missing",
        message:
          "children get no cgroup of their own; a process that leaves its group with an empty environment outlives its deployment",
        details: { reason: cgroups.reason },
      });
    const guard = startGuard({
      workDirectory: directories.work,
      cgroups: cgroups.directory,
      lockFd: lock.fd,
      log,
    });
    return {
      directories,
      strays,
      cgroups,
      guard,
      async release() {
        await guard.close();
        lock.release();
      },
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}
