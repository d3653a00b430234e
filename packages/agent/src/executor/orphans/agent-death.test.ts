import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { descendantsOf, identify, isAlive, signal } from "@tenure/testing/processes/proc";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { childrenOf, guardOf, startAgentProcess } from "../../../testing/agent-process.ts";
import { aRow, PATIENT, startExecutor, wanted } from "../../../testing/executor-fixture.ts";
import { isStillAlive, readBootId, readProcess } from "../child/proc.ts";

// Each of these starts several processes of Node, which takes seconds on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

const FOREVER = "sleep 1000 & exec sleep 1000";
const rows = (count: number) =>
  Array.from({ length: count }, () => wanted(aRow({ command: FOREVER })));

function anAgent(options: Parameters<typeof startAgentProcess>[0]): RunningProcess {
  const agent = startAgentProcess(options);
  onTestFinished(async () => {
    await agent.kill9();
    await nobodyOf(options.dataDir);
  });
  return agent;
}

const nobodyOf = (dataDir: string) =>
  until(() => childrenOf(dataDir).length === 0, { ...PATIENT, what: `no child of ${dataDir}` });

const somebodyOf = (dataDir: string, count: number) =>
  until(() => childrenOf(dataDir).length >= count, { ...PATIENT, what: `${count} processes` });

describe("children die with the agent", () => {
  test("I11: an agent killed at any moment while children start leaves no orphan, and the next agent starts no second child", {
    timeout: 180_000,
  }, async () => {
    const dataDir = scratchDirectory("node");
    const all = rows(4);
    for (let round = 0; round < 10; round++) {
      // The next agent begins while the guard of the former one still ends its children.
      const agent = anAgent({ dataDir, all, restartEveryMs: 40 });
      await agent.waitForLine(/^starting \d+$/, PATIENT.deadlineMs);
      // Another moment in every round, with no clock to agree on: as long as so many looks at /proc take.
      for (let look = 0; look <= round; look++) expectNoTwin(dataDir);
      await agent.kill9();
    }
    await nobodyOf(dataDir);
  });

  test("an agent killed before its guard watches a child leaves one that ends without executing its program", async () => {
    const directory = scratchDirectory("launch");
    const agent = startLauncher(directory, "echo begun > begun; exec sleep 1000");
    onTestFinished(async () => void (await agent.kill9()));
    await agent.waitForLine(/^launching$/);
    const [child] = await until(
      () => descendantsOf(agent.pid).length > 0 && descendantsOf(agent.pid),
      {
        ...PATIENT,
        what: "the child that waits",
      },
    );
    const waiting = identify(child ?? 0);
    expect(waiting && isAlive(waiting)).toBe(true);
    await agent.kill9();
    await until(() => !waiting || !isAlive(waiting), { ...PATIENT, what: "the child to end" });
    expect(readdirSync(directory)).toEqual([]);
  });

  test("an agent whose guard was killed and replaced leaves no orphan", async () => {
    const dataDir = scratchDirectory("node");
    const agent = anAgent({ dataDir, all: rows(2) });
    await somebodyOf(dataDir, 4);
    const guard = guardOf(agent.pid);
    expect(guard).toBeDefined();
    signal(guard ?? 0, "SIGKILL");
    await agent.waitForLine(/^guard\.lost$/);
    await until(() => ![undefined, guard].includes(guardOf(agent.pid)), {
      ...PATIENT,
      what: "another guard",
    });
    await agent.kill9();
    await nobodyOf(dataDir);
  });

  test("a child that cleared its environment ends with the agent", async () => {
    const dataDir = scratchDirectory("node");
    const row = aRow({ command: "exec env -i sleep 1000" });
    const agent = anAgent({ dataDir, all: [wanted(row)] });
    const [, pid] = await agent.waitForLine(/^running (\d+)$/, PATIENT.deadlineMs);
    const child = identify(Number(pid));
    expect(child && isAlive(child)).toBe(true);
    await agent.kill9();
    await until(() => child && !isAlive(child), { ...PATIENT, what: "the child to end" });
  });

  test("a child that left its process group ends with the agent", async () => {
    const dataDir = scratchDirectory("node");
    const row = aRow({ command: "setsid sleep 1000 & exec sleep 1000" });
    const agent = anAgent({ dataDir, all: [wanted(row)] });
    await somebodyOf(dataDir, 2);
    await agent.kill9();
    await nobodyOf(dataDir);
  });

  test("an agent kills the children of one that was killed with its guard, before it starts any", async () => {
    const dataDir = scratchDirectory("node");
    const all = rows(2);
    const agent = anAgent({ dataDir, all });
    await somebodyOf(dataDir, 4);
    await agent.freeze();
    signal(guardOf(agent.pid) ?? 0, "SIGKILL");
    await agent.kill9();
    const orphans = childrenOf(dataDir).map(({ pid }) => identify(pid));
    expect(orphans.filter((one) => one && isAlive(one))).toHaveLength(4);
    const { logs } = await startExecutor({ dataDir });
    expect(orphans.filter((one) => one && isAlive(one))).toEqual([]);
    expect(logs.map(({ event }) => event)).toContain("leftovers.killed");
  });

  test("an agent waits for the guard of the former one, which would kill the new children too", async () => {
    const dataDir = scratchDirectory("node");
    const all = rows(1);
    const former = anAgent({ dataDir, all });
    await somebodyOf(dataDir, 2);
    const guard = identify(guardOf(former.pid) ?? 0);
    signal(guard?.pid ?? 0, "SIGSTOP");
    onTestFinished(() => void signal(guard?.pid ?? 0, "SIGCONT"));
    await former.kill9();
    const next = anAgent({ dataDir, all });
    await next.waitForLine(/^beginning$/, PATIENT.deadlineMs);
    // A moment in which it would get ready if it did not wait. Too short a moment only makes the test see less.
    await Promise.race([next.waitForLine(/^ready$/).catch(() => {}), pause(500)]);
    expect(next.stdout()).not.toContain("ready");
    signal(guard?.pid ?? 0, "SIGCONT");
    await next.waitForLine(/^ready$/, PATIENT.deadlineMs);
    expect(guard && isAlive(guard)).toBe(false);
  });

  test("an agent that is stopped leaves no process, not even its guard", async () => {
    const dataDir = scratchDirectory("node");
    const agent = anAgent({ dataDir, all: rows(2) });
    await somebodyOf(dataDir, 4);
    const guard = identify(guardOf(agent.pid) ?? 0);
    expect(await agent.stop()).toMatchObject({ code: 0 });
    expect(childrenOf(dataDir)).toEqual([]);
    expect(guard && isAlive(guard)).toBe(false);
  });

  test("a lock of another boot, or of a reused pid, kills no process", async () => {
    const dataDir = scratchDirectory("node");
    await (await startExecutor({ dataDir })).executor.stop();
    const bystander = startProcess({ command: "sleep", args: ["1000"] });
    onTestFinished(async () => void (await bystander.kill9()));
    const { startTicks } = identify(bystander.pid) ?? { startTicks: 0 };
    const record = (ticks: number, boot: string): void =>
      writeFileSync(
        join(dataDir, "run", `${aRow().id}.lock`),
        `${bystander.pid} ${ticks} ${boot}\n`,
      );
    record(startTicks, "another-boot");
    record(startTicks - 1, readBootId());
    const { logs } = await startExecutor({ dataDir });
    expect(logs.map(({ event }) => event)).not.toContain("leftovers.killed");
    expect(identify(bystander.pid)).toMatchObject({ startTicks });
  });
});

describe("one process per deployment", () => {
  test("a second agent of the same data directory is refused with the reason; the first runs on", async () => {
    const dataDir = scratchDirectory("node");
    const all = rows(2);
    const first = anAgent({ dataDir, all });
    await somebodyOf(dataDir, 4);
    const second = anAgent({ dataDir, all });
    const [, reason] = await second.waitForLine(/^refused: (.*)$/, PATIENT.deadlineMs);
    expect(reason).toContain(`another agent (pid ${first.pid}) uses this data directory`);
    expect(childrenOf(dataDir)).toHaveLength(4);
    await first.stop();
    const third = anAgent({ dataDir, all });
    await third.waitForLine(/^running/, PATIENT.deadlineMs);
  });

  test("a deployment is not started while another process has its lock, and then it is", async () => {
    const { executor, reported, dataDir } = await startExecutor();
    const row = aRow({ command: "exec sleep 1000" });
    const path = join(dataDir, "run", `${row.id}.lock`);
    const holder = startLockHolder(path);
    onTestFinished(async () => void (await holder.kill9()));
    await holder.waitForLine(/^locked$/);
    executor.setDesired([wanted(row)]);
    expect((await reported(row, "failed")).last_error).toContain(
      "another process of this deployment still runs on this machine",
    );
    expect(executor.running()).toEqual([]);
    await holder.kill9();
    await reported(row, "running");
  });

  test("the lock of a deployment is held by the child's processes, not by the agent", async () => {
    const dataDir = scratchDirectory("node");
    const row = aRow({ command: "exec sleep 1000" });
    const path = join(dataDir, "run", `${row.id}.lock`);
    const agent = anAgent({ dataDir, all: [wanted(row)] });
    const [, pid] = await agent.waitForLine(/^running (\d+)$/, PATIENT.deadlineMs);
    expect(await triedLock(path)).toBe("taken");
    await agent.freeze();
    signal(guardOf(agent.pid) ?? 0, "SIGKILL");
    await agent.kill9();
    expect(await triedLock(path)).toBe("taken");
    signal(Number(pid), "SIGKILL");
    await nobodyOf(dataDir);
    expect(await triedLock(path)).toBe("locked");
  });
});

/** At most one process group per deployment. A new one may be seen before an old one that has died meanwhile. */
function expectNoTwin(dataDir: string): void {
  const seen = childrenOf(dataDir).map(({ pid, deploymentId }) => {
    return { entry: readProcess(pid), deploymentId };
  });
  const alive = seen.filter(({ entry }) => entry && isStillAlive(entry));
  const groups = new Set(
    alive.map(({ entry, deploymentId }) => `${deploymentId} ${entry?.groupId}`),
  );
  const deployments = new Set(alive.map(({ deploymentId }) => deploymentId));
  expect(groups.size).toBe(deployments.size);
}

/** An agent whose guard does not answer, so that its child never executes its program. */
function startLauncher(directory: string, command: string): RunningProcess {
  const built = join(repositoryRoot, "packages/agent/dist/executor/child/launch.js");
  const program = `
    import { launch } from ${JSON.stringify(built)};
    const guard = { watch: () => new Promise(() => {}), forget() {}, async close() {} };
    const args = ["-c", ${JSON.stringify(command)}];
    launch({ file: "/bin/sh", args, env: {}, directory: ${JSON.stringify(directory)} }, guard);
    console.log("launching");
    setInterval(() => {}, 1000);`;
  return startProcess({ command: process.execPath, args: ["--input-type=module", "-e", program] });
}

async function triedLock(path: string): Promise<string | undefined> {
  const holder = startLockHolder(path);
  const [answer] = await holder.waitForLine(/^(locked|taken)$/);
  await holder.kill9();
  return answer;
}

/** A process that tries to lock the file, prints the result, and keeps the lock. */
function startLockHolder(path: string): RunningProcess {
  const built = join(repositoryRoot, "packages/agent/dist/executor/data-directory/locks.js");
  const program = `
    import { tryLock } from ${JSON.stringify(built)};
    console.log(tryLock(${JSON.stringify(path)}) ? "locked" : "taken");
    setInterval(() => {}, 1000);`;
  return startProcess({ command: process.execPath, args: ["--input-type=module", "-e", program] });
}
