import { chmodSync, chownSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { join } from "node:path";
import type { RunAs } from "../../run-as.ts";
import type { ExecutorLog } from "../contract.ts";

/**
 * The directories below the data directory of a node-unit. They are closed to other users; the users of its children may
 * enter `root`, `packages` and `work`, but not list them.
 */
export interface Directories {
  root: string;
  /** `<name>@<version>/`: installed packages. */
  packages: string;
  /** `<deployment id>/`: the working directory of a child. Its files survive a restart. */
  work: string;
  /** `<deployment id>/`: rotated files. */
  logs: string;
  /** Locks and records of what runs. */
  run: string;
}

/** Creates the directories. Throws when other users cannot be kept out. */
export function makeDirectories(
  dataDir: string,
  log: (line: ExecutorLog) => void,
  runAs?: RunAs,
): Directories {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  // The real path: children are found again by it.
  const root = realpathSync(dataDir);
  // A line break would make two patterns for the guard, and the second could match any process.
  if (/\p{Cc}/u.test(root))
    throw new Error(
      `data directory ${JSON.stringify(root)} must have no control character in its path`,
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

/** Lets the group of the children enter the directory, but not list it. */
function letThrough(directory: string, { gid }: RunAs): void {
  chownSync(directory, -1, gid);
  chmodSync(directory, 0o700 | GROUP_ENTERS);
}

/** Another owner than this agent's user could open the directory again and replace its contents. */
function closeToOthers(
  root: string,
  { log, runAs }: { log: (line: ExecutorLog) => void; runAs: RunAs | undefined },
): void {
  const { uid, gid, mode } = statSync(root);
  const ownUid = process.geteuid?.() ?? uid;
  if (uid !== ownUid)
    throw new Error(
      `data directory ${root} belongs to user ${uid}, but this agent runs as user ${ownUid}; set ` +
        `NODE_UNIT_DATA_DIR to a directory of this agent's own, such as ${join(root, "node")}, or chown it`,
    );
  const isPassage = (mode & OTHERS) === GROUP_ENTERS && gid === runAs?.gid;
  if ((mode & OTHERS) === 0 || isPassage) return;
  chmodSync(root, 0o700);
  log({
    level: "warn",
    event: "directory.closed",
    message: "data directory was open to other users; closed it",
    details: { directory: root, former_mode: (mode & 0o777).toString(8) },
  });
}
