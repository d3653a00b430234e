import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * A cgroup per deployment. A process cannot leave it by `setsid` or by forgetting its environment, so what a child
 * started is found there when the process group and the environment say nothing.
 */
export interface Cgroups {
  /** Holds a directory per deployment; `undefined` where there are none, and `reason` says why. */
  readonly directory: string | undefined;
  readonly reason: string;
  /** Puts a process, and whatever it starts from now on, into the cgroup of its deployment. Throws when it cannot. */
  put(deploymentId: string, pid: number): void;
  /** Processes in the cgroups of this agent, zombies perhaps too. */
  members(): { pid: number; deploymentId: string }[];
  /** Where the kernel can (version 2): kills all of them at once, also those that fork meanwhile. */
  kill(deploymentId: string): void;
  /** After the last process has ended. */
  remove(deploymentId: string): void;
}

export interface CgroupHierarchy {
  version: 1 | 2;
  /** The directory of the cgroup that this process is in. */
  directory: string;
}

/** Opens the first hierarchy in which this agent may make cgroups. `root` is its data directory. */
export function openCgroups(
  root: string,
  hierarchies: readonly CgroupHierarchy[] = readHierarchies(),
): Cgroups {
  const reasons: string[] = [];
  for (const { directory } of hierarchies) {
    const own = join(directory, nameOf(root));
    try {
      makeOne(own);
      return cgroupsIn(own);
    } catch (error) {
      reasons.push((error as Error).message);
    }
  }
  return noCgroups(reasons.join("; ") || "this machine has no cgroup hierarchy that fits");
}

function cgroupsIn(directory: string): Cgroups {
  const pathOf = (deploymentId: string, file = "") => join(directory, deploymentId, file);
  return {
    directory,
    reason: "",
    put(deploymentId, pid) {
      makeOne(pathOf(deploymentId));
      writeFileSync(pathOf(deploymentId, "cgroup.procs"), `${pid}`);
    },
    members: () =>
      deploymentsIn(directory).flatMap((deploymentId) =>
        (read(pathOf(deploymentId, "cgroup.procs")) ?? "")
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => ({ pid: Number(line), deploymentId })),
      ),
    kill(deploymentId) {
      try {
        writeFileSync(pathOf(deploymentId, "cgroup.kill"), "1", { flag: "r+" });
      } catch {
        // version 1, or Linux before 5.14: its members are killed one by one
      }
    },
    remove(deploymentId) {
      try {
        rmdirSync(pathOf(deploymentId));
      } catch {
        // was never there, or a zombie keeps it a moment longer; it is used again or removed by the guard
      }
    },
  };
}

/** Not recursive: where the file system refuses with ENOENT, Node would make the parents again without end. */
function makeOne(directory: string): void {
  try {
    mkdirSync(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

const noCgroups = (reason: string): Cgroups => ({
  directory: undefined,
  reason,
  put() {},
  members: () => [],
  kill() {},
  remove() {},
});

/** The same for every agent of one data directory, and for no other: a path may mean two directories in two containers. */
function nameOf(root: string): string {
  const { dev, ino } = statSync(root);
  const digest = createHash("sha256").update(`${root}\0${dev}\0${ino}`).digest("hex");
  return `tenure-${digest.slice(0, 16)}`;
}

function deploymentsIn(directory: string): string[] {
  try {
    const entries = readdirSync(directory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    return [];
  }
}

/** Of version 1 only those that limit nothing by themselves. */
const CONTROLLERS = ["freezer", "pids"];

export function readHierarchies(proc = "/proc/self"): CgroupHierarchy[] {
  return hierarchiesOf(read(`${proc}/cgroup`) ?? "", read(`${proc}/mountinfo`) ?? "");
}

/** From the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`; version 2 first, because it kills at once. */
export function hierarchiesOf(cgroup: string, mountinfo: string): CgroupHierarchy[] {
  const paths = cgroup.split("\n").map((line) => {
    const [, controllers = "", path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    return { controllers: controllers.split(","), path };
  });
  const found = mountinfo.split("\n").flatMap((line): (CgroupHierarchy & { rank: number })[] => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , , root = "", mountPoint = ""] = before.split(" ");
    const [type, , options = ""] = after.split(" ");
    const isV2 = type === "cgroup2";
    const controller = isV2 ? "" : CONTROLLERS.find((name) => options.split(",").includes(name));
    if (!(isV2 || type === "cgroup") || controller === undefined) return [];
    const own = paths.find(({ controllers, path }) => path && controllers.includes(controller));
    const below = own && pathBelow(root, own.path);
    if (below === undefined) return [];
    const rank = isV2 ? 0 : 1 + CONTROLLERS.indexOf(controller);
    return [{ version: isV2 ? 2 : 1, directory: join(mountPoint, below), rank }];
  });
  return found
    .sort((a, b) => a.rank - b.rank)
    .map(({ version, directory }) => ({ version, directory }));
}

/** A container may see only a part of the hierarchy, under `root`. */
function pathBelow(root: string, path: string): string | undefined {
  if (root === "/") return path;
  return path === root || path.startsWith(`${root}/`) ? path.slice(root.length) : undefined;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
