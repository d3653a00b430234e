import { mkdirSync, readdirSync, rmSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { until } from "@tenure/testing/until";
import { expect, test, vi } from "vitest";
import { aRow, PATIENT, startExecutor, wanted } from "../../../testing/executor-fixture.ts";

vi.setConfig({ testTimeout: 120_000 });

const MIB = 1024 * 1024;

test("a child that writes as fast as it can fills neither memory nor disk", async () => {
  const { executor, reported, dataDir } = await startExecutor();
  const row = aRow({
    command: "yes 'a line of a log as children write them, sixty-four bytes long....'",
  });
  const before = process.memoryUsage().rss;
  const delay = monitorEventLoopDelay();
  executor.setDesired([wanted(row)]);
  await reported(row, "running");
  delay.enable();
  const directory = join(dataDir, "logs", row.id);
  const newest = (): number =>
    Math.max(0, ...readdirSync(directory).map((name) => Number.parseInt(name, 10)));
  await until(() => newest() > 7, { ...PATIENT, what: "70 MiB of log" });
  delay.disable();
  const names = readdirSync(directory);
  expect(names.length).toBeLessThanOrEqual(6);
  // It writes on, so the oldest of them may be removed before it is looked at.
  const files = names.map(
    (name) => statSync(join(directory, name), { throwIfNoEntry: false })?.size ?? 0,
  );
  expect(Math.max(...files)).toBeLessThanOrEqual(10 * MIB);
  expect(process.memoryUsage().rss - before).toBeLessThan(150 * MIB);
  // What else the agent has to do gets its turn all the time.
  expect(delay.percentile(50) / 1e6).toBeLessThan(500);
  const { lines } = await executor.readLog({ deployment_id: row.id, lines: 5 });
  expect(new Set(lines)).toEqual(
    new Set(["a line of a log as children write them, sixty-four bytes long...."]),
  );
});

test("a full disk ends neither the child nor the agent, and the loss is logged once", async () => {
  const { executor, reported, logs, dataDir } = await startExecutor({
    tuning: {
      startedAfterMs: 50,
      logs: { fileBytesMax: MIB, filesMax: 5, retryAfterMs: 0, checkEveryMs: 0 },
    },
  });
  const row = aRow({ command: "while :; do echo tick; sleep 0.01; done" });
  const directory = join(dataDir, "logs", row.id);
  mkdirSync(directory, { recursive: true });
  symlinkSync("/dev/full", join(directory, "00000001.log"));
  executor.setDesired([wanted(row)]);
  const { pid } = await reported(row, "running");
  await until(() => logs.some(({ event }) => event === "child.log-failed"), {
    ...PATIENT,
    what: "the loss",
  });
  expect(executor.running()).toMatchObject([{ pid }]);
  rmSync(join(directory, "00000001.log"));
  const read = () => executor.readLog({ deployment_id: row.id });
  await until(async () => (await read()).lines.length > 3, {
    ...PATIENT,
    what: "lines after the loss",
  });
  const { lines } = await read();
  expect(
    lines.filter((line) => /^\[tenure\] \d+ lines were dropped here: ENOSPC/.test(line)),
  ).toHaveLength(1);
  expect(logs.filter(({ event }) => event === "child.log-failed")).toHaveLength(1);
  expect(executor.running()).toMatchObject([{ pid }]);
});

test("both streams of a child go to one log in whole lines, also the last line", async () => {
  const { executor, reported, logLines } = await startExecutor();
  const row = aRow({
    command: "printf 'one '; echo two >&2; echo three; printf 'last words' >&2; exit 1",
  });
  executor.setDesired([wanted(row)]);
  await reported(row, "backoff");
  const lines = (await logLines(row, 3)).slice(0, 3);
  expect([...lines].sort()).toEqual(["last words", "one three", "two"].sort());
});

test("the log of a deployment continues across restarts, and can be read after its removal", async () => {
  const { executor, reported, logLines, dataDir } = await startExecutor();
  const row = aRow({ command: "echo $TENURE_FENCING_TOKEN; exec sleep 1000" });
  executor.setDesired([wanted(row)]);
  await logLines(row, 1);
  executor.setDesired([wanted({ ...row, generation: 2 })]);
  await logLines(row, 2);
  executor.setDesired([]);
  await reported(row, "stopped");
  expect(await logLines(row)).toEqual(["1", "2"]);
  await executor.stop();
  const next = await startExecutor({ dataDir });
  expect(await next.logLines(row)).toEqual(["1", "2"]);
});

test("a child may open its outputs by name", async () => {
  const { executor, logLines } = await startExecutor();
  const row = aRow({ command: "echo one > /dev/stdout; echo two > /dev/stderr; exec sleep 1000" });
  executor.setDesired([wanted(row)]);
  expect((await logLines(row, 2)).sort()).toEqual(["one", "two"]);
});

test("the outputs of a child are read also without named pipes", async () => {
  const { executor, logLines, dataDir } = await startExecutor();
  const row = aRow({ command: "echo one; echo two >&2; exec sleep 1000" });
  mkdirSync(join(dataDir, "run", `${row.id}.out`));
  executor.setDesired([wanted(row)]);
  expect((await logLines(row, 2)).sort()).toEqual(["one", "two"]);
});
