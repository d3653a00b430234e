import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { lchownSync, readdirSync, statSync } from "node:fs";
import { lchown } from "node:fs/promises";
import { join } from "node:path";
import { isRunAsUid, type Owner, type RunAs } from "../../run-as.ts";
import { walk } from "../../walk.ts";
import type { Directories } from "./directories.ts";

/** Chooses the user that the processes of a deployment run as. */
export interface Owners {
  /**
   * Returns the same user for as long as the deployment has a work directory here; in a range, a user of no other deployment.
   * `undefined`: the agent's own user. Throws when every uid of the range is in use.
   */
  of(deploymentId: string): Owner | undefined;
}

/** The owner of a work directory records its uid, so that the record lives as long as the files. */
export function createOwners(runAs: RunAs | undefined, work: string): Owners {
  const reserved = new Map<string, number>();

  function uidOf(deploymentId: string, range: Extract<RunAs, { kind: "each" }>): number {
    const own = reserved.get(deploymentId) ?? ownerOf(join(work, deploymentId));
    if (own !== undefined && isRunAsUid(range, own)) return own;
    for (const id of reserved.keys())
      if (ownerOf(join(work, id)) === undefined) reserved.delete(id);
    const taken = new Set([
      ...reserved.values(),
      ...readdirSync(work).map((name) => ownerOf(join(work, name))),
    ]);
    const count = range.lastUid - range.firstUid + 1;
    // Not the lowest free uid: a deployment that was removed lately may have left files of that uid elsewhere.
    const start = createHash("sha256").update(deploymentId).digest().readUInt32BE() % count;
    for (let step = 0; step < Math.min(count, taken.size + 1); step++) {
      const uid = range.firstUid + ((start + step) % count);
      if (!taken.has(uid)) return uid;
    }
    throw new Error(
      `NODE_UNIT_RUN_AS: all ${count} uids are in use; widen the range, or remove directories of work/`,
    );
  }

  return {
    of(deploymentId) {
      if (!runAs) return undefined;
      if (runAs.kind === "one") return { uid: runAs.uid, gid: runAs.gid };
      const uid = uidOf(deploymentId, runAs);
      reserved.set(deploymentId, uid);
      return { uid, gid: runAs.gid };
    },
  };
}

function ownerOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.uid;
}

/**
 * Changes the owner of a work directory, and of those files in it that its former owner had: a file of a third user may be
 * a link that a child made. No process of the deployment may run meanwhile. The directory itself is changed last, so that an
 * interrupted change is repeated.
 */
export async function chownDirectory(directory: string, { uid, gid }: Owner): Promise<void> {
  const former = statSync(directory);
  if (former.uid === uid && former.gid === gid) return;
  for await (const { path, stat } of walk(directory))
    if (stat.uid === former.uid) await lchown(path, uid, gid);
  lchownSync(directory, uid, gid);
}

/** Succeeds if the user can enter the work directory and run Node. */
const PROBE = 'cd "$1" && [ -x "$2" ]';

/** Throws when children could not run as these users, or when the agent could not kill them. */
export async function checkRunAs(runAs: RunAs, { work, root }: Directories): Promise<void> {
  const ownUid = process.geteuid?.();
  if (ownUid !== 0)
    throw new Error(`NODE_UNIT_RUN_AS requires an agent that runs as root, not as user ${ownUid}`);
  const owner = { uid: runAs.kind === "one" ? runAs.uid : runAs.firstUid, gid: runAs.gid };
  try {
    const probe = spawn("/bin/sh", ["-c", PROBE, "sh", work, process.execPath], {
      ...owner,
      cwd: "/",
      env: {},
      stdio: "ignore",
    });
    const exited = once(probe, "exit");
    if (probe.pid !== undefined) process.kill(probe.pid, 0);
    const [code] = await exited;
    if (code === 0) return;
  } catch (error) {
    throw new Error(`NODE_UNIT_RUN_AS cannot be used: ${(error as Error).message}`);
  }
  throw new Error(
    `NODE_UNIT_RUN_AS: user ${owner.uid} cannot enter ${root} or cannot run ${process.execPath}; each directory ` +
      "above them must let other users through (mode 0711 or 0755)",
  );
}
