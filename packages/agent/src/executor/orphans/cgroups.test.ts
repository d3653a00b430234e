import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { describe, expect, test } from "vitest";
import { guardOf, startAgentProcess } from "../../../testing/agent-process.ts";
import { aRow, startExecutor, wanted } from "../../../testing/executor-fixture.ts";
import { type CgroupHierarchy, hierarchiesOf, openCgroups, readHierarchies } from "./cgroups.ts";

const V1 = `37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd`;
const V2 = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

describe("the cgroup hierarchies of a machine", () => {
  test.each([
    [
      "version 1",
      "8:pids:/a\n6:freezer:/\n1:cpu:/",
      V1,
      [
        [1, "freezer/"],
        [1, "pids/a"],
      ],
    ],
    ["version 2", "0::/system.slice/tenure.service", V2, [[2, "system.slice/tenure.service"]]],
    [
      "both",
      "8:pids:/a\n0::/b",
      `${V1}\n${V2}`,
      [
        [2, "b"],
        [1, "pids/a"],
      ],
    ],
    [
      "a container that sees its own part",
      "0::/docker/abc/x",
      V2.replace(" / ", " /docker/abc "),
      [[2, "x"]],
    ],
    ["a container that sees another part", "0::/", V2.replace(" / ", " /docker/abc "), []],
    ["none", "", "", []],
  ])("%s", (_, cgroup, mountinfo, expected) => {
    expect(hierarchiesOf(cgroup, mountinfo)).toEqual(
      expected.map(([version, path]) => ({ version, directory: `/sys/fs/cgroup/${path}` })),
    );
  });
});

test("in a directory tree like version 2 a process is added, listed and killed at once", () => {
  const [fake, root] = [scratchDirectory("fake-cgroup-v2"), scratchDirectory("node")];
  const cgroups = openCgroups(root, [{ version: 2, directory: fake }]);
  cgroups.put("d", 42); // the kernel makes these files by itself, and cgroup.kill with them
  const killFile = join(cgroups.directory!, "d", "cgroup.kill");
  writeFileSync(killFile, "");
  expect(cgroups.members()).toEqual([{ deploymentId: "d", pid: 42 }]);
  cgroups.kill("d");
  expect(readFileSync(killFile, "utf8")).toBe("1");
});

test("an agent that may not create cgroups has none, with the reason", () => {
  const root = scratchDirectory("node");
  const cgroups = openCgroups(root, [{ version: 2, directory: "/proc" }]);
  expect(cgroups.directory).toBeUndefined();
  expect(cgroups.reason).toMatch(/ENOENT|EACCES/);
  cgroups.put("d", 42);
  expect(cgroups.members()).toEqual([]);
});

/** Of this machine, those in which this user may make one. A machine without any has no test here. */
function usable(): CgroupHierarchy[] {
  return readHierarchies().filter((hierarchy) => {
    const { directory } = openCgroups(scratchDirectory("node"), [hierarchy]);
    if (directory) rmdirSync(directory);
    return directory !== undefined;
  });
}

for (const hierarchy of usable())
  test(`the kernel's version ${hierarchy.version} in ${hierarchy.directory}: a process that left its session is found`, async () => {
    const root = scratchDirectory("node");
    const cgroups = openCgroups(root, [hierarchy]);
    const shell = spawn("sh", ["-c", "read go; env -i setsid sleep 600 & exit 0"]);
    cgroups.put("d", shell.pid!);
    shell.stdin.end("go\n");
    await once(shell, "exit");
    const [left] = await until(() => cgroups.members().length === 1 && cgroups.members(), {
      what: "one process that is left",
    });
    cgroups.kill("d");
    if (hierarchy.version === 1) process.kill(left!.pid, "SIGKILL");
    await until(() => cgroups.members().length === 0, { what: "its end" });
    cgroups.remove("d");
    expect(readdirSync(cgroups.directory!).filter((name) => name === "d")).toEqual([]);
    rmdirSync(cgroups.directory!);
  });

if (usable().length > 0)
  describe("a child that starts a process with no environment in another session", () => {
    const escaping = (mark: string) => `env -i setsid sleep ${mark} & while :; do sleep 1; done`;

    test("is stopped only when that process has ended too", async () => {
      const fixture = await startExecutor();
      const mark = `600.${process.pid}1`;
      const row = aRow({ command: escaping(mark) });
      fixture.executor.setDesired([wanted(row)]);
      await until(() => sleepers(mark).length === 1, { what: "the process that escapes" });
      fixture.executor.setDesired([]);
      await fixture.reported(row, "stopped");
      expect(sleepers(mark)).toEqual([]);
      expect(fixture.logs.map(({ event }) => event)).toContain("child.strays-killed");
    });

    test("ends when its agent is killed, and its cgroup is removed", async () => {
      const dataDir = scratchDirectory("node");
      const mark = `600.${process.pid}2`;
      const agent = startAgentProcess({
        dataDir,
        all: [wanted(aRow({ command: escaping(mark) }))],
      });
      const [pid] = await until(() => sleepers(mark).length === 1 && sleepers(mark), {
        what: "the process that escapes",
      });
      const directory = cgroupOf(pid!);
      expect(guardOf(agent.pid)).toBeDefined();
      await agent.kill9();
      await until(() => sleepers(mark).length === 0, { what: "its end" });
      await until(
        () =>
          !readdirSync(dirname(dirname(directory))).includes(dirname(directory).split("/").at(-1)!),
        {
          what: "the cgroups to be removed",
        },
      );
    });
  });

function sleepers(mark: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, "utf8") === `sleep\0${mark}\0`;
      } catch {
        return false;
      }
    })
    .map(Number);
}

function cgroupOf(pid: number): string {
  const [hierarchy] = usable();
  const found = readHierarchies(`/proc/${pid}`).find(
    ({ version, directory }) => version === hierarchy!.version && directory.includes("/tenure-"),
  );
  return found!.directory;
}
