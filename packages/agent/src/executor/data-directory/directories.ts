import { chmodSync, chownSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { join } from "node:path";
import type { RunAs } from "../../run-as.ts";
import type { ExecutorLog } from "../contract.ts";

/**
 * Where things are in the data directory of a node-unit. All of it is its own and closed to other users; the users of its
 * children may pass through `root`, `packages` and `work`, and list none of them.
 */
export interface Directories {
  root: string;
  /** `<name>@<version>/`: installed packages. */
  packages: string;
  /** `<deployment id>/`: where a child starts. Its files stay when it is restarted. */
  work: string;
  /** `<deployment id>/`: rotated files. */
  logs: string;
  /** Locks and records of what runs. */
  run: string;
}

/** Throws when the directory cannot be kept from other users. */
export function makeDirectories(
  dataDir: string,
  log: (line: ExecutorLog) => void,
  runAs?: RunAs,
): Directories {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  // One name for one directory: children are found again by it.
  const root = realpathSync(dataDir);
  // A line break would be two patterns for the guard, and the second one could match anybody.
  if (/\p{Cc}/u.test(root))
    throw new Error(
      `the data directory ${JSON.stringify(root)} has a control character in its name`,
    );
  closeToOthers(root, { log, runAs });
  const made = {
    root,
    packages: join(root, "packages"),
    work: join(root, "work"),
    logs: join(root, "logs"),
    run: join(root, "run"),
  };
  for (const directory of Object.values(made))
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (runAs) for (const passage of [root, made.packages, made.work]) letThrough(passage, runAs);
  return made;
}

const OTHERS = 0o077;
const GROUP_ENTERS = 0o010;

/** The group of the children may enter, not list. */
function letThrough(directory: string, { gid }: RunAs): void {
  chownSync(directory, -1, gid);
  chmodSync(directory, 0o700 | GROUP_ENTERS);
}

/** An owner other than this agent's user could open the directory again, and replace what is below it. */
function closeToOthers(
  root: string,
  { log, runAs }: { log: (line: ExecutorLog) => void; runAs: RunAs | undefined },
): void {
  const { uid, gid, mode } = statSync(root);
  const ownUid = process.geteuid?.() ?? uid;
  if (uid !== ownUid)
    throw new Error(
      `the data directory ${root} belongs to user ${uid}, and this agent runs as user ${ownUid}; set ` +
        `NODE_UNIT_DATA_DIR to a directory of this agent's own, such as ${join(root, "node")}, or chown it`,
    );
  const isPassage = (mode & OTHERS) === GROUP_ENTERS && gid === runAs?.gid;
  if ((mode & OTHERS) === 0 || isPassage) return;
  chmodSync(root, 0o700);
  log({
    level: "warn",
    event: "directory.closed",
    message: "the data directory was open to other users; now only this user can enter it",
    details: { directory: root, former_mode: (mode & 0o777).toString(8) },
  });
}
