import { readdirSync, readFileSync } from "node:fs";

/** A process as the kernel lists it. A pid alone does not identify a process, because pids are reused. */
export interface ProcessEntry extends ProcessIdentity {
  state: string;
  groupId: number;
}

export interface ProcessIdentity {
  pid: number;
  /** Clock ticks from boot to the start of the process. */
  startTicks: number;
}

/** Lists all processes; `undefined` without /proc. */
export function listProcesses(): ProcessEntry[] | undefined {
  try {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map((name) => readProcess(Number(name)))
      .filter((entry) => entry !== undefined);
  } catch {
    return undefined;
  }
}

export function readProcess(pid: number): ProcessEntry | undefined {
  const text = readProc(`${pid}/stat`);
  if (text === undefined) return undefined;
  // The name (field 2) stands in parentheses and may itself contain spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state = "", , groupId] = fields;
  return { pid, state, groupId: Number(groupId), startTicks: Number(fields[19]) };
}

/** Whether a process is no zombie. `kill(pid, 0)` finds zombies until their parent collects the exit code. */
export const isAlive = ({ state }: ProcessEntry): boolean => state !== "Z" && state !== "X";

export function isStillAlive({ pid, startTicks }: ProcessIdentity): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && entry.startTicks === startTicks && isAlive(entry);
}

/** Returns the effective user of a process. */
export function readUid(pid: number): number | undefined {
  const uid = /^Uid:\s+\d+\s+(\d+)/m.exec(readProc(`${pid}/status`) ?? "")?.[1];
  return uid === undefined ? undefined : Number(uid);
}

/** Returns the variables a process was started with; none for a process of another user, or one that overwrote them. */
export function readEnvironment(pid: number): string[] {
  return (readProc(`${pid}/environ`) ?? "").split("\0");
}

/** Returns the id of this boot of the machine: pids and ticks are comparable only within one boot. */
export function readBootId(): string {
  return readProc("sys/kernel/random/boot_id")?.trim() ?? "";
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(`/proc/${path}`, "utf8");
  } catch {
    return undefined; // The process has ended, or never existed.
  }
}
