import type { RunAs } from "../../run-as.ts";
import type { ExecutorLog } from "../contract.ts";
import { type Cgroups, openCgroups } from "../orphans/cgroups.ts";
import { type Guard, startGuard } from "../orphans/guard.ts";
import { createOrphans, killFormerChildren, type Orphans } from "../orphans/orphans.ts";
import { type Directories, makeDirectories } from "./directories.ts";
import { lockDataDirectory } from "./locks.ts";
import { checkRunAs } from "./owners.ts";

/** A data directory that this agent has locked, and in which no child of a former agent runs. */
export interface DataDirectory {
  directories: Directories;
  orphans: Orphans;
  cgroups: Cgroups;
  guard: Guard;
  release(): Promise<void>;
}

/** Opens and locks a data directory. Throws when it cannot be used, or when another agent uses it. */
export async function openDataDirectory(
  dataDir: string,
  log: (line: ExecutorLog) => void,
  runAs?: RunAs,
): Promise<DataDirectory> {
  const directories = makeDirectories(dataDir, log, runAs);
  if (runAs) await checkRunAs(runAs, directories);
  const lock = await lockDataDirectory(directories.run);
  try {
    const cgroups = openCgroups(directories.root);
    const orphans = createOrphans(directories.work, cgroups);
    const killed = await killFormerChildren(directories, orphans, runAs);
    if (killed > 0)
      log({
        level: "warn",
        event: "leftovers.killed",
        message: "killed processes that a former agent left running",
        details: { processes: killed },
      });
    if (cgroups.directory === undefined)
      log({
        level: "warn",
        event: "cgroups.missing",
        message:
          "could not create cgroups; a process that leaves its group with an empty environment outlives its deployment",
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
      orphans,
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
