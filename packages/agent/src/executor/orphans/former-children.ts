import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { isRunAsUid, type RunAs } from "../../run-as.ts";
import { groupGone, signalGroup } from "../child/group.ts";
import { isStillAlive, readUid } from "../child/proc.ts";
import type { Directories } from "../data-directory/directories.ts";
import { AGENT_LOCK, readHolder } from "../data-directory/locks.ts";
import type { Strays } from "./orphans.ts";

export const lockPath = ({ run }: Directories, deploymentId: string): string =>
  join(run, `${deploymentId}.lock`);

const GONE_MS = 10_000;

/**
 * Ends what a former agent of this data directory left running; for when its guard was killed with it. The locks name
 * the groups, with the time their first process began: the same pid may belong to another process by now. A child has its lock
 * open and could write another process into it; one of another user is not ended for that.
 */
export async function endLeftovers(
  directories: Directories,
  strays: Strays,
  runAs?: RunAs,
): Promise<number> {
  const names = (await readdir(directories.run)).filter((name) => name.endsWith(".lock"));
  const leaders = names
    .filter((name) => name !== AGENT_LOCK)
    .map((name) => readHolder(join(directories.run, name)))
    .filter((holder) => holder !== undefined)
    .filter(isStillAlive)
    .filter(({ pid }) => !runAs || isRunAsUid(runAs, readUid(pid) ?? 0));
  await Promise.all(
    leaders.map(async (leader) => {
      signalGroup(leader.pid, "SIGKILL");
      await groupGone(leader.pid, GONE_MS);
    }),
  );
  return leaders.length + (await strays.endAll());
}
