import { readdirSync, readFileSync } from "node:fs";

/** A process as the kernel knows it. A pid alone may have been given to somebody else since. */
export interface ProcessIdentity {
  pid: number;
  /** Field 22 of /proc/<pid>/stat: clock ticks from boot to the start of the process. */
  startTicks: number;
}

interface Stat extends ProcessIdentity {
  state: string;
  parentPid: number;
  cpuTicks: number;
}

export function identify(pid: number): ProcessIdentity | undefined {
  const stat = readStat(pid);
  return stat && { pid, startTicks: stat.startTicks };
}

/** A zombie counts as dead: it does nothing any more, though `kill(pid, 0)` still finds it. */
export function isAlive({ pid, startTicks }: ProcessIdentity): boolean {
  const stat = readStat(pid);
  return stat !== undefined && stat.startTicks === startTicks && !isDead(stat);
}

/** True when the process was stopped by SIGSTOP. */
export function isFrozen(pid: number): boolean {
  return readStat(pid)?.state === "T";
}

/** The process's living children, their children and so on, nearest first. */
export function descendantsOf(pid: number): number[] {
  const everyone = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const all = everyone.map((name) => readStat(Number(name))).filter((stat) => stat !== undefined);
  const stats = all.filter((stat) => !isDead(stat));
  const found = [pid];
  for (const parent of found) {
    found.push(...stats.filter((stat) => stat.parentPid === parent).map((stat) => stat.pid));
  }
  return found.slice(1);
}

/** Resident memory in MiB; 0 for a process that is gone. */
export function residentMb(pid: number): number {
  const status = readProc(`${pid}/status`) ?? "";
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / 1024;
}

/** Linux counts in hundredths of a second, whatever the kernel's own clock is. */
const MS_PER_TICK = 10;

/** Processor time so far, its own and the kernel's for it; 0 for a process that is gone. */
export function cpuMsOf(pid: number): number {
  return (readStat(pid)?.cpuTicks ?? 0) * MS_PER_TICK;
}

/** Sends a signal. Returns false if there is no such process. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}

const isDead = ({ state }: Stat): boolean => state === "Z" || state === "X";

function readStat(pid: number): Stat | undefined {
  const text = readProc(`${pid}/stat`);
  if (text === undefined) return undefined;
  // The name (field 2) stands in parentheses and may itself contain spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state = "", parentPid] = fields;
  return {
    pid,
    state,
    parentPid: Number(parentPid),
    cpuTicks: Number(fields[11]) + Number(fields[12]),
    startTicks: Number(fields[19]),
  };
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(`/proc/${path}`, "utf8");
  } catch {
    return undefined; // gone between listing and reading, or never there
  }
}
