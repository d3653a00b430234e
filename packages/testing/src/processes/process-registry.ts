import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { directoryOf, ownerDirectory, parseOwnerName, runsDirectory } from "../scratch.ts";
import { unmountBelow, unmountMine } from "../stores/small-disk.ts";
import { until } from "../until.ts";
import { discardMyHosts, discardOrphanedHosts } from "./hosts.ts";
import { descendantsOf, identify, isAlive, type ProcessIdentity, signal } from "./proc.ts";

/**
 * Every process the tests start is written down, as the name of an empty file, before anything else
 * happens. This process ends its own when it ends; what a killed run leaves behind, the next run
 * finds here. Always by pid **and** start time, never by name.
 */
export function remember(pid: number, endSignal: NodeJS.Signals): void {
  const identity = identify(pid);
  if (identity === undefined) return;
  endEverythingAtExit();
  mkdirSync(join(ownerDirectory(), "pids"), { recursive: true });
  writeFileSync(entryPath({ ...identity, endSignal }), "");
  mine.set(pid, { ...identity, endSignal });
}

export function forget(pid: number): void {
  const entry = mine.get(pid);
  if (entry === undefined) return;
  mine.delete(pid);
  rmSync(entryPath(entry), { force: true });
}

/** Ends the processes, and removes the files, of runs that are dead. Returns how many it ended. */
export async function sweepOrphans(): Promise<number> {
  let ended = 0;
  discardOrphanedHosts();
  for (const name of readdirSync(runsDirectory())) {
    const owner = parseOwnerName(name);
    if (owner === undefined || isAlive(owner)) continue;
    const orphans = startedBy(owner).filter(isAlive);
    await Promise.all(orphans.map(endAndWait));
    ended += orphans.length;
    unmountBelow(directoryOf(owner));
    rmSync(directoryOf(owner), { recursive: true, force: true, maxRetries: 5 });
  }
  return ended;
}

/** The processes an owner has started and not yet seen end. */
export function startedBy(owner: ProcessIdentity): Entry[] {
  const directory = join(directoryOf(owner), "pids");
  return existsSync(directory) ? readdirSync(directory).map(parseEntry) : [];
}

export interface Entry extends ProcessIdentity {
  /** SIGQUIT for Postgres, which must take its children and shared memory with it; else SIGKILL. */
  endSignal: NodeJS.Signals;
}

const mine = new Map<number, Entry>();
let armed = false;

function endEverythingAtExit(): void {
  if (armed) return;
  armed = true;
  process.once("exit", endMine);
  // Vitest ends its workers by SIGTERM, and a signal skips "exit".
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.once(name, () => {
      endMine();
      process.kill(process.pid, name);
    });
  }
  // A worker whose vitest was killed would finish its test first, with nobody to hear the result.
  process.once("disconnect", () => {
    endMine();
    process.kill(process.pid, "SIGKILL");
  });
}

function endMine(): void {
  for (const entry of mine.values()) if (isAlive(entry)) endNow(entry, entry.endSignal);
  mine.clear();
  unmountMine();
  discardMyHosts();
  try {
    rmSync(ownerDirectory(), { recursive: true, force: true, maxRetries: 5 });
  } catch {
    // Somebody is still writing there while dying. The next sweep removes it.
  }
}

async function endAndWait(entry: Entry): Promise<void> {
  const gone = () => !isAlive(entry);
  endNow(entry, entry.endSignal);
  const what = `the end of orphan ${entry.pid}`;
  await until(gone, { deadlineMs: 5_000, what }).catch(() => {
    endNow(entry, "SIGKILL");
    return until(gone, { what });
  });
}

function endNow({ pid }: Entry, endSignal: NodeJS.Signals): void {
  const tree = [pid, ...descendantsOf(pid)];
  for (const member of endSignal === "SIGKILL" ? tree : [pid]) signal(member, endSignal);
  for (const member of tree) signal(member, "SIGCONT"); // a frozen process ends only when thawed
}

function entryPath({ pid, startTicks, endSignal }: Entry): string {
  return join(ownerDirectory(), "pids", `${pid}.${startTicks}.${endSignal}`);
}

function parseEntry(name: string): Entry {
  const [pid, startTicks, endSignal] = name.split(".");
  return {
    pid: Number(pid),
    startTicks: Number(startTicks),
    endSignal: endSignal as NodeJS.Signals,
  };
}
