import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { describe, expect, test } from "vitest";
import { createSampler } from "./sampler.ts";

/** A machine with the kernel files of a test. */
function machine() {
  const root = scratchDirectory("machine");
  let nowMs = 0;
  const put = (path: string, text: string): void => {
    mkdirSync(join(root, path, ".."), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  put("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n");
  put("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    786432 kB\n");
  put("proc/self/cgroup", "0::/unit\n");
  const sampler = () =>
    createSampler({
      proc: join(root, "proc"),
      cgroups: join(root, "cgroup"),
      nowMs: () => nowMs,
    });
  return { put, sampler, pass: (ms: number) => (nowMs += ms) };
}

describe("a machine without limits", () => {
  test("processor use counts since the last sample, and waiting for a disk is idle", () => {
    const { put, sampler, pass } = machine();
    const usage = sampler();
    pass(1_000);
    put("proc/stat", "cpu  130 0 120 940 10 0 0 0 0 0\n");
    expect(usage.sample().cpu_percent).toBe(25);
    pass(1_000);
    put("proc/stat", "cpu  230 0 120 940 10 0 0 0 0 0\n");
    expect(usage.sample().cpu_percent).toBe(100);
  });

  test("memory that the kernel would free is not used", () => {
    const { sampler } = machine();
    expect(sampler().sample()).toMatchObject({ memory_percent: 25, memory_mb: 256 });
  });

  test("two samples at the same moment are equal", () => {
    const { put, sampler, pass } = machine();
    const usage = sampler();
    pass(1_000);
    put("proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\n");
    const first = usage.sample().cpu_percent;
    put("proc/stat", "cpu  151 0 150 900 0 0 0 0 0 0\n");
    expect(usage.sample().cpu_percent).toBe(first);
  });
});

describe("a limited container", () => {
  test("two allowed cores in use are 100 %", () => {
    const { put, sampler, pass } = machine();
    put("cgroup/unit/cpu.max", "200000 100000\n");
    put("cgroup/unit/cpu.stat", "usage_usec 5000000\nuser_usec 1\n");
    const usage = sampler();
    pass(1_000);
    put("cgroup/unit/cpu.stat", "usage_usec 7000000\nuser_usec 1\n");
    expect(usage.sample().cpu_percent).toBe(100);
    pass(1_000);
    put("cgroup/unit/cpu.stat", "usage_usec 7500000\nuser_usec 1\n");
    expect(usage.sample().cpu_percent).toBe(25);
  });

  test("memory is a share of the limit, without inactive file pages", () => {
    const { put, sampler } = machine();
    const mib = 1024 * 1024;
    put("cgroup/unit/memory.max", `${400 * mib}\n`);
    put("cgroup/unit/memory.current", `${300 * mib}\n`);
    put("cgroup/unit/memory.stat", `anon 1\ninactive_file ${200 * mib}\n`);
    expect(sampler().sample()).toMatchObject({ memory_percent: 25, memory_mb: 100 });
  });

  test("without a limit the machine's values count", () => {
    const { put, sampler } = machine();
    put("cgroup/unit/cpu.max", "max 100000\n");
    put("cgroup/unit/cpu.stat", "usage_usec 1\n");
    put("cgroup/unit/memory.max", "max\n");
    put("cgroup/unit/memory.current", "1\n");
    expect(sampler().sample()).toMatchObject({ memory_percent: 25 });
  });
});

test("without /proc the values come from Node", () => {
  const { memory_mb, memory_percent } = createSampler({
    proc: "/nowhere",
    cgroups: "/nowhere",
  }).sample();
  expect(memory_mb).toBeGreaterThan(0);
  expect(memory_percent).toBeGreaterThan(0);
});

test("this machine is sampled in percent, and a busy one is not idle", async () => {
  const usage = createSampler();
  await until(
    () => {
      for (const end = performance.now() + 150; performance.now() < end; );
      const { cpu_percent, memory_percent } = usage.sample();
      return cpu_percent > 0 && cpu_percent <= 100 && memory_percent > 0 && memory_percent <= 100;
    },
    { deadlineMs: 25_000, what: "a sample of a busy machine" },
  );
});
