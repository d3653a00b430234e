import { readFileSync } from "node:fs";
import { cpus, freemem, totalmem } from "node:os";
import { join } from "node:path";
import type { ResourceUsage } from "@tenure/protocol";

export interface Sampler {
  /** Returns the usage since the last call. Cheap: a few small reads, no timer. */
  sample(): ResourceUsage;
}

/** The file systems of the kernel; tests replace them. */
export interface SamplerOptions {
  proc?: string;
  cgroups?: string;
  nowMs?: () => number;
}

/** A shorter interval would measure mostly the sampler itself. */
const INTERVAL_MS_MIN = 100;

/** Samples processor and memory of the machine, or of the container: one with two of 64 cores is at 100 % when it uses two. */
export function createSampler({
  proc = "/proc",
  cgroups = "/sys/fs/cgroup",
  nowMs = () => performance.now(),
}: SamplerOptions = {}): Sampler {
  const cgroup = join(cgroups, ownCgroup(proc));
  let former = { ...readCpu(proc, cgroup, nowMs()), atMs: nowMs() };
  let percent = 0;

  return {
    sample() {
      const atMs = nowMs();
      if (atMs - former.atMs >= INTERVAL_MS_MIN) {
        const present = { ...readCpu(proc, cgroup, atMs), atMs };
        percent = share(present.busy - former.busy, present.total - former.total);
        former = present;
      }
      const { usedBytes, totalBytes } = readMemory(proc, cgroup);
      return {
        cpu_percent: percent,
        memory_percent: share(usedBytes, totalBytes),
        memory_mb: Math.round(usedBytes / 1024 / 1024),
      };
    },
  };
}

/** In percent with one decimal, from 0 to 100. */
function share(part: number, whole: number): number {
  if (!(whole > 0)) return 0;
  return Math.min(100, Math.max(0, Math.round((part / whole) * 1000) / 10));
}

/** Used and available time, in the same unit. */
interface Cpu {
  busy: number;
  total: number;
}

function readCpu(proc: string, cgroup: string, nowMs: number): Cpu {
  return readLimitedCpu(cgroup, nowMs) ?? readMachineCpu(proc);
}

function readLimitedCpu(cgroup: string, nowMs: number): Cpu | undefined {
  const [quotaUs, periodUs] = (read(cgroup, "cpu.max") ?? "max").split(/\s/).map(Number);
  const usedUs = /^usage_usec (\d+)/m.exec(read(cgroup, "cpu.stat") ?? "")?.[1];
  if (!quotaUs || !periodUs || usedUs === undefined) return undefined;
  return { busy: Number(usedUs), total: nowMs * 1000 * (quotaUs / periodUs) };
}

function readMachineCpu(proc: string): Cpu {
  const ticks = /^cpu +(.*)/
    .exec(read(proc, "stat") ?? "")?.[1]
    ?.split(" ")
    .map(Number);
  if (!ticks) return readPortableCpu();
  // user nice system idle iowait irq softirq steal; the columns after that are part of user.
  const total = ticks.slice(0, 8).reduce((sum, one) => sum + one, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { busy: total - idle, total };
}

function readPortableCpu(): Cpu {
  const times = cpus().flatMap(({ times }) => Object.values(times));
  const total = times.reduce((sum, one) => sum + one, 0);
  const idle = cpus().reduce((sum, { times }) => sum + times.idle, 0);
  return { busy: total - idle, total };
}

interface Memory {
  usedBytes: number;
  totalBytes: number;
}

function readMemory(proc: string, cgroup: string): Memory {
  return readLimitedMemory(cgroup) ?? readMachineMemory(proc);
}

/** Excludes inactive files: the kernel frees their pages before memory runs short. */
function readLimitedMemory(cgroup: string): Memory | undefined {
  const totalBytes = Number(read(cgroup, "memory.max") ?? "max");
  const current = Number(read(cgroup, "memory.current") ?? "none");
  if (!Number.isFinite(totalBytes) || !Number.isFinite(current)) return undefined;
  const files = /^inactive_file (\d+)/m.exec(read(cgroup, "memory.stat") ?? "")?.[1] ?? 0;
  return { usedBytes: Math.max(0, current - Number(files)), totalBytes };
}

function readMachineMemory(proc: string): Memory {
  const text = read(proc, "meminfo") ?? "";
  const total = /^MemTotal: +(\d+) kB/m.exec(text)?.[1];
  const available = /^MemAvailable: +(\d+) kB/m.exec(text)?.[1];
  if (total === undefined || available === undefined)
    return { usedBytes: totalmem() - freemem(), totalBytes: totalmem() };
  return {
    usedBytes: (Number(total) - Number(available)) * 1024,
    totalBytes: Number(total) * 1024,
  };
}

/** Version 2 only: the line that begins with `0::`. */
function ownCgroup(proc: string): string {
  return /^0::(\/.*)$/m.exec(read(proc, "self/cgroup") ?? "")?.[1] ?? "/";
}

function read(directory: string, file: string): string | undefined {
  try {
    return readFileSync(join(directory, file), "utf8");
  } catch {
    return undefined;
  }
}
