import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * A cgroup per deployment. A process cannot leave it by `setsid` or by clearing its environment, so the cgroup finds
 * processes that the process group and the environment do not.
 */
export interface Cgroups {
  /** The parent of a directory per deployment; `undefined` without cgroups, for `reason`. */
  readonly directory: string | undefined;
  readonly reason: string;
  /** Puts a process and its future children into the cgroup of its deployment. Throws when it cannot. */
  put(deploymentId: string, pid: number): void;
  /** The processes in the cgroups of this agent; some may be zombies. */
  members(): { pid: number; deploymentId: string }[];
  /** Kills all processes at once, also those that fork meanwhile, if the kernel can (version 2). */
  kill(deploymentId: string): void;
  /** Removes the cgroup, after its last process has ended. */
  remove(deploymentId: string): void;
}

export interface CgroupHierarchy {
  version: 1 | 2;
  /** The directory of this process's cgroup. */
  directory: string;
}

/** Opens the first hierarchy in which this agent may create cgroups. `root` is its data directory. */
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
  return noCgroups(reasons.join("; ") || "this machine has no usable cgroup hierarchy");
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
        // Version 1, or Linux before 5.14: the caller kills the members one by one.
      }
    },
    remove(deploymentId) {
      try {
        rmdirSync(pathOf(deploymentId));
      } catch {
        // It never existed, or a zombie is left in it; it is reused or removed by the guard.
      }
    },
  };
}

/** Not recursive: when the file system fails with ENOENT, Node would create the parents in an endless loop. */
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

/** Unique per data directory. The path alone is not: it may mean two directories in two containers. */
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

/** The controllers of version 1 that limit nothing by default. */
const CONTROLLERS = ["freezer", "pids"];

export function readHierarchies(proc = "/proc/self"): CgroupHierarchy[] {
  return hierarchiesOf(read(`${proc}/cgroup`) ?? "", read(`${proc}/mountinfo`) ?? "");
}

/** Parses `/proc/self/cgroup` and `/proc/self/mountinfo`. Version 2 comes first, because it can kill at once. */
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

/** A container may see only the part of the hierarchy below `root`. */
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
