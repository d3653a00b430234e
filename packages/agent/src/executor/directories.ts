import { mkdirSync, realpathSync } from "node:fs";
import { join } from "node:path";

/** Where things are in the data directory of a node-unit. All of it is its own and closed to other users. */
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

export function makeDirectories(dataDir: string): Directories {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  // One name for one directory: children are found again by it.
  const root = realpathSync(dataDir);
  // A line break would be two patterns for the guard, and the second one could match anybody.
  if (/\p{Cc}/u.test(root))
    throw new Error(
      `the data directory ${JSON.stringify(root)} has a control character in its name`,
    );
  const made = {
    root,
    packages: join(root, "packages"),
    work: join(root, "work"),
    logs: join(root, "logs"),
    run: join(root, "run"),
  };
  for (const directory of Object.values(made))
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  return made;
}
