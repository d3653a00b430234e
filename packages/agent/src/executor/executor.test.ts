import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { identify, isAlive } from "@tenure/testing/processes/proc";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { aRow, PATIENT, startExecutor, wanted } from "../../testing/executor-fixture.ts";
import { isGroupAlive } from "./child/group.ts";

vi.setConfig({ testTimeout: 120_000 });

const FOREVER = "exec sleep 1000";

describe("the desired deployments", () => {
  test("a child is started, stopped when it is not desired any more, and every step is reported", async () => {
    const { executor, reported, statesOf } = await startExecutor();
    const row = aRow({ command: FOREVER, generation: 7 });
    executor.setDesired([wanted(row)]);
    const { pid, spec_hash, started_at } = await reported(row, "running");
    expect(executor.running()).toEqual([{ deploymentId: row.id, generation: 7, pid }]);
    expect(spec_hash).toMatch(/^[0-9a-f]{32}$/);
    expect(new Date(started_at ?? "").getTime()).toBeGreaterThan(0);
    executor.setDesired([]);
    await reported(row, "stopped", (report) => report.pid === null);
    expect(isGroupAlive(pid ?? 0)).toBe(false);
    expect(executor.running()).toEqual([]);
    expect(statesOf(row)).toEqual(["starting", "running", "stopping", "stopped"]);
  });

  test("a child runs on when its row changes without a new generation or specification", async () => {
    const { executor, reported, reports } = await startExecutor();
    const row = aRow({ command: FOREVER, env: { A: "1", B: "2" } });
    const reworded = {
      ...row,
      name: "other",
      revision: 9,
      selector: { zone: "a" },
      updated_at: "2027-01-01T00:00:00.000Z",
      env: { B: "2", A: "1" },
    };
    const later = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    await reported(row, "running");
    const count = reports.length;
    executor.setDesired([wanted(reworded)]);
    executor.setDesired([wanted({ ...row }), wanted(later)]);
    await reported(later, "running"); // by then a wrong restart would have been reported
    expect(reports.slice(count).filter(({ deployment_id }) => deployment_id === row.id)).toEqual(
      [],
    );
  });

  test.each([
    ["a new term", { generation: 2 }],
    ["a new environment", { env: { COLOUR: "blue" } }],
    ["other arguments", { args: ["one"] }],
    ["another command", { command: `echo changed; ${FOREVER}` }],
  ])("%s is another child", async (_, change) => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER, args: [] });
    executor.setDesired([wanted(row)]);
    const before = await reported(row, "running");
    executor.setDesired([wanted({ ...row, ...change })]);
    const after = await reported(row, "starting", ({ pid }) => Boolean(pid) && pid !== before.pid);
    expect(isGroupAlive(before.pid ?? 0)).toBe(false);
    expect(after.restarts).toBe(0);
  });

  test("a row without arguments and environment is not started", async () => {
    const { executor, reported, reports } = await startExecutor();
    const { args, env, ...bare } = aRow({ command: FOREVER });
    const other = aRow({ command: FOREVER });
    executor.setDesired([wanted(bare), wanted(other)]);
    await reported(other, "running"); // by then it would have been started
    expect(reports.filter(({ deployment_id }) => deployment_id === bare.id)).toEqual([]);
    executor.setDesired([wanted({ ...bare, args: args ?? [], env: env ?? {} })]);
    await reported(aRow(bare), "running");
    executor.setDesired([wanted({ ...bare })]);
    expect(executor.running().map(({ deploymentId }) => deploymentId)).toContain(bare.id);
  });

  test("a restart of a child starts it again, and a restart of an unknown deployment is refused", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    const before = await reported(row, "running");
    await executor.restart(row.id);
    const after = await reported(row, "running", ({ pid }) => pid !== before.pid);
    expect(after.restarts).toBe(1);
    await expect(executor.restart(aRow().id)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("reportAll repeats the last report of every deployment", async () => {
    const { executor, reported, reports } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    const running = await reported(row, "running");
    executor.reportAll();
    expect(reports.at(-1)).toEqual(running);
  });

  test("a deployment that was removed and is desired again runs again", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    const before = await reported(row, "running");
    executor.setDesired([]);
    executor.setDesired([wanted({ ...row })]);
    await reported(row, "running", ({ pid }) => pid !== before.pid);
    expect(executor.running()).toHaveLength(1);
  });

  test("stop ends daemons too, and no child is started after it", async () => {
    const { executor, reported } = await startExecutor();
    const rows = [aRow({ command: FOREVER }), aRow({ command: FOREVER, type: "daemon" })] as const;
    executor.setDesired(rows.map((row) => wanted(row)));
    const pids = [await reported(rows[0], "running"), await reported(rows[1], "running")];
    await executor.stop();
    expect(pids.filter(({ pid }) => isGroupAlive(pid ?? 0))).toEqual([]);
    executor.setDesired([wanted(aRow({ command: FOREVER }))]);
    expect(executor.running()).toEqual([]);
  });
});

describe("the surroundings of a child", () => {
  test("have its own environment, and nothing of the agent's", async () => {
    vi.stubEnv("HOST_TOKEN", "agent-secret-1");
    vi.stubEnv("NODE_UNIT_PASSWORD", "agent-secret-2");
    vi.stubEnv("SOME_VARIABLE", "agent-secret-3");
    onTestFinished(() => void vi.unstubAllEnvs());
    const { executor, logLines, dataDir } = await startExecutor({
      tenureUrl: "http://there:1",
      tenureCaFile: "/etc/ca.pem",
    });
    const row = aRow({
      command: `env; echo done; ${FOREVER}`,
      generation: 42,
      env: { COLOUR: "a b\n$(c)", LANG: "xx", TENURE_FENCING_TOKEN: "99" },
    });
    executor.setDesired([wanted(row)]);
    const lines = await logLines(row, 8);
    const text = lines.join("\n");
    expect(text).not.toContain("agent-secret");
    expect(lines).toContain(`TENURE_DEPLOYMENT_ID=${row.id}`);
    expect(lines).toContain("TENURE_FENCING_TOKEN=42");
    expect(lines).toContain("TENURE_URL=http://there:1");
    expect(lines).toContain("TENURE_CA_FILE=/etc/ca.pem");
    expect(text).toContain("COLOUR=a b\n$(c)");
    expect(lines).toContain("LANG=xx");
    expect(lines).toContain(`HOME=${dataDir}/work/${row.id}`);
    const names = lines.map((line) => /^([A-Z_]+)=/.exec(line)?.[1]).filter(Boolean);
    const shells = ["PWD", "OLDPWD", "SHLVL", "_"];
    expect(names.filter((name) => !shells.includes(name ?? "")).sort()).toEqual([
      "COLOUR",
      "HOME",
      "LANG",
      "PATH",
      "TENURE_CA_FILE",
      "TENURE_DEPLOYMENT_ID",
      "TENURE_FENCING_TOKEN",
      "TENURE_URL",
      "TENURE_WORK_DIR",
    ]);
  });

  test("have its arguments as they were written, and a directory of its own", async () => {
    const { executor, logLines, dataDir } = await startExecutor();
    const args = ["two words", "$(touch pwned)", "; exit 1", '"', "-n", "*"];
    const row = aRow({ command: "pwd; printf '<%s>\\n'", args });
    executor.setDesired([wanted(row)]);
    const lines = await logLines(row, 7);
    expect(lines.slice(0, 7)).toEqual([
      join(dataDir, "work", row.id),
      ...args.map((arg) => `<${arg}>`),
    ]);
    expect(existsSync(join(dataDir, "work", row.id, "pwned"))).toBe(false);
  });
});

describe("stopping", () => {
  test("a child that ignores SIGTERM is killed after the grace, and only then is the next one started", async () => {
    const { executor, reported, logs, logLines } = await startExecutor({ stopGraceMs: 300 });
    const trap = "trap '' TERM; echo deaf; while :; do sleep 0.1; done";
    const row = aRow({ command: trap });
    executor.setDesired([wanted(row)]);
    const deaf = await reported(row, "running");
    const old = identify(deaf.pid ?? 0);
    await logLines(row); // A shell that is reported as running may not have set its trap yet.
    executor.setDesired([
      wanted({
        ...row,
        generation: 2,
        command: `test -e /proc/${deaf.pid} && echo twin; ${FOREVER}`,
      }),
    ]);
    await reported(row, "running", ({ generation }) => generation === 2);
    expect(old && isAlive(old)).toBe(false);
    expect(logs.map(({ event }) => event)).toContain("child.killed");
    expect((await executor.readLog({ deployment_id: row.id })).lines).not.toContain("twin");
  });

  test("a child that stops within the grace is not killed", async () => {
    const { executor, reported, logLines } = await startExecutor();
    const row = aRow({
      command:
        "trap 'echo saving; sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
    });
    executor.setDesired([wanted(row)]);
    await logLines(row);
    executor.setDesired([]);
    await reported(row, "stopped");
    expect((await logLines(row)).at(-1)).toBe("saved");
  });

  test("the forks of a child end with it, also those that left its group", async () => {
    const directory = scratchDirectory("pids");
    const { executor, reported, logs } = await startExecutor({ stopGraceMs: 300 });
    const fork = (name: string, how: string): string =>
      `${how} sh -c 'trap "" TERM; echo $$ > ${directory}/${name}; while :; do sleep 0.1; done' &`;
    const row = aRow({ command: `${fork("near", "")} ${fork("far", "setsid")} ${FOREVER}` });
    executor.setDesired([wanted(row)]);
    await reported(row, "running");
    const pids = await until(
      () => ["near", "far"].map((name) => Number(readFileSync(join(directory, name), "utf8"))),
      { ...PATIENT, what: "the forks to begin" },
    );
    const forks = pids.map((pid) => identify(pid));
    executor.setDesired([]);
    await reported(row, "stopped");
    expect(forks.filter((one) => one && isAlive(one))).toEqual([]);
    expect(logs.map(({ event }) => event)).toContain("child.strays-killed");
  });

  test("a child that forks and exits counts as exited: its forks are killed and it is started again", async () => {
    const directory = scratchDirectory("pids");
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: `sleep 1000 & echo $! >> ${directory}/forks; sleep 0.1; exit 0` });
    executor.setDesired([wanted(row)]);
    await reported(row, "backoff", ({ restarts }) => (restarts ?? 0) >= 2);
    executor.setDesired([]);
    await reported(row, "stopped");
    const forks = readFileSync(join(directory, "forks"), "utf8").trim().split("\n").map(Number);
    expect(forks.length).toBeGreaterThanOrEqual(3);
    expect(forks.map((pid) => identify(pid)).filter((one) => one && isAlive(one))).toEqual([]);
  });
});

describe("failing", () => {
  test("a child that crashes at once is reported with exit code and stderr, and started again", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: "echo unused; echo 'cannot find the thing' >&2; exit 3" });
    executor.setDesired([wanted(row)]);
    const first = await reported(row, "backoff");
    expect(first).toMatchObject({ exit_code: 3, signal: null, pid: null });
    expect(first.last_error).toBe("exited with code 3: cannot find the thing");
    await reported(row, "backoff", ({ restarts }) => (restarts ?? 0) >= 2);
  });

  test("a child that is killed is reported with its signal", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: "kill -SEGV $$; sleep 1000" });
    executor.setDesired([wanted(row)]);
    expect(await reported(row, "backoff")).toMatchObject({ exit_code: null, signal: "SIGSEGV" });
  });

  test("a daemon that exits is reported with ERR_DAEMON_MISSING, and started again", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER, type: "daemon", generation: 0 });
    executor.setDesired([wanted(row)]);
    const { pid } = await reported(row, "running");
    process.kill(pid ?? 0, "SIGKILL");
    const missing = await reported(row, "backoff");
    expect(missing.last_error).toBe("ERR_DAEMON_MISSING: was ended by SIGKILL");
    await reported(row, "running", (report) => report.pid !== pid);
  });

  test("a child that cannot be started is reported as failed, and starts when it can", async () => {
    const { executor, reported, dataDir } = await startExecutor();
    const row = aRow({ command: FOREVER });
    const inTheWay = join(dataDir, "work", row.id);
    writeFileSync(inTheWay, "");
    executor.setDesired([wanted(row)]);
    expect((await reported(row, "failed")).last_error).toContain("EEXIST");
    rmSync(inTheWay);
    await reported(row, "running");
  });

  test("a failure whose text no store accepts is still reported", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: "printf 'a\\000b\\377c' >&2; exit 1" });
    executor.setDesired([wanted(row)]);
    expect((await reported(row, "backoff")).last_error).toBe("exited with code 1: a\uFFFDb\uFFFDc");
  });

  test("a child that crashes for an hour does not affect the others", async () => {
    const { executor, reported } = await startExecutor({ startConcurrencyMax: 1 });
    const bad = aRow({ command: "exit 1" });
    const good = aRow({ command: FOREVER });
    executor.setDesired([wanted(bad), wanted(good)]);
    await reported(good, "running");
    await reported(bad, "backoff", ({ restarts }) => (restarts ?? 0) > 2);
    expect(executor.running().filter(({ deploymentId }) => deploymentId === good.id)).toHaveLength(
      1,
    );
  });
});

describe("modes", () => {
  test("a deployment that another node takes over stays stopped until this node owns it again", async () => {
    const { executor, reported, statesOf } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    const { pid } = await reported(row, "running");
    executor.setDesired([wanted(row, "hold")]);
    await reported(row, "stopped");
    expect(isGroupAlive(pid ?? 0)).toBe(false);
    await expect(executor.restart(row.id)).resolves.toBeUndefined();
    expect(executor.running()).toEqual([]);
    executor.setDesired([wanted(row)]);
    await reported(row, "running");
    expect(statesOf(row).slice(0, 4)).toEqual(["starting", "running", "stopping", "stopped"]);
  });

  test("a deployment that this node takes over next is reported as ready, and not started", async () => {
    const { executor, reported, statesOf } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row, "prepare")]);
    await reported(row, "stopped");
    expect(statesOf(row)).toEqual(["stopped"]);
    expect(executor.running()).toEqual([]);
    executor.setDesired([wanted({ ...row, generation: 2 })]);
    await reported(row, "running", ({ generation }) => generation === 2);
  });

  test("a deployment that may not run here is refused with the reasons, after its child is stopped", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER });
    executor.setDesired([wanted(row)]);
    const { pid } = await reported(row, "running");
    executor.setDesired([wanted(row, "run", ["command_not_allowed", "package_untrusted"])]);
    const refused = await reported(row, "refused");
    expect(refused.last_error).toBe("not allowed here: command_not_allowed, package_untrusted");
    expect(isGroupAlive(pid ?? 0)).toBe(false);
  });

  test("a suspended executor stops deployments, keeps daemons, and starts nothing until it resumes", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER });
    const late = aRow({ command: FOREVER });
    const daemon = aRow({ command: FOREVER, type: "daemon" });
    executor.setDesired([wanted(row), wanted(daemon)]);
    await reported(row, "running");
    const { pid } = await reported(daemon, "running");
    executor.suspend("no contact for 30 s");
    expect((await reported(row, "stopped")).last_error).toBe("no contact for 30 s");
    executor.setDesired([wanted(row), wanted(late), wanted(daemon)]);
    expect((await reported(late, "stopped")).last_error).toBe("no contact for 30 s");
    expect(executor.running()).toEqual([{ deploymentId: daemon.id, generation: 1, pid }]);
    executor.resume();
    await Promise.all([reported(row, "running"), reported(late, "running")]);
    expect(executor.running()).toHaveLength(3);
  });

  test("a suspended executor keeps a child that may run on, and starts no new row", async () => {
    const { executor, reported } = await startExecutor();
    const [hasty, patient, late] = [1, 2, 3].map(() => aRow({ command: FOREVER }));
    executor.setDesired([wanted(hasty!), wanted(patient!)]);
    await reported(hasty!, "running");
    const { pid } = await reported(patient!, "running");
    executor.suspend("no contact for 30 s", ({ id }) => id !== hasty!.id);
    await reported(hasty!, "stopped");
    executor.setDesired([wanted(hasty!), wanted(patient!), wanted(late!)]);
    await reported(late!, "stopped");
    expect(executor.running()).toEqual([{ deploymentId: patient!.id, generation: 1, pid }]);
    executor.suspend("no contact for 30 s");
    await reported(patient!, "stopped");
  });

  test("a changed lost_after_ms is reported without a restart", async () => {
    const { executor, reported } = await startExecutor();
    const row = aRow({ command: FOREVER, lost_after_ms: 60_000 });
    executor.setDesired([wanted(row)]);
    const { pid, lost_after_ms } = await reported(row, "running");
    expect(lost_after_ms).toBe(60_000);
    executor.setDesired([wanted({ ...row, lost_after_ms: 0 })]);
    const again = await reported(row, "running", (report) => report.lost_after_ms === 0);
    expect(again.pid).toBe(pid);
  });
});

test("starts at once are limited, and each begins when another has ended", async () => {
  const { executor, reports } = await startExecutor({ startConcurrencyMax: 2 });
  const rows = Array.from({ length: 7 }, () => aRow({ command: FOREVER }));
  executor.setDesired(rows.map((row) => wanted(row)));
  const running = (): number =>
    new Set(reports.filter(({ state }) => state === "running").map(({ pid }) => pid)).size;
  await until(() => running() === 7, { ...PATIENT, what: "all to run" });
  const starting = new Set<string>();
  let atOnceMax = 0;
  for (const { deployment_id, state } of reports) {
    if (state === "starting") starting.add(deployment_id);
    else starting.delete(deployment_id);
    atOnceMax = Math.max(atOnceMax, starting.size);
  }
  expect(atOnceMax).toBe(2);
});

test("an unchanged list of many deployments is cheap to apply", async () => {
  const { executor } = await startExecutor();
  const all = Array.from({ length: 2_000 }, () => wanted(aRow({ command: FOREVER }), "hold"));
  executor.setDesired(all);
  // Time of the processor, not of the clock: others want the machine too. Measured: 2 ms.
  const before = process.cpuUsage();
  for (let n = 0; n < 50; n++) executor.setDesired(all);
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1_000 / 50).toBeLessThan(30);
});
