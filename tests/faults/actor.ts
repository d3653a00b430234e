import type { MovableClock } from "../support/faketime.ts";
import { type ProcessSpec, type RunningProcess, startProcess } from "../support/process.ts";
import type { FaultProxy } from "../support/proxy.ts";
import type { SmallDisk } from "../support/small-disk.ts";

/** `hosts` is the way to every instance, `edge` the way of everybody to this one. */
export type LineName = "postgres" | "redis" | "hosts" | "edge";

/** The ways of a process to others, through proxies of its own. */
export type Lines = Partial<Record<LineName, FaultProxy[]>>;

/** A process that the nemesis may kill, stop, start again and cut off. */
export interface Actor {
  readonly role: string;
  readonly name: string;
  readonly lines: Lines;
  /** Faults that are not done to it. */
  readonly spared: readonly string[];
  /** How long it may be dead or cut off. */
  readonly awayMaxMs: number;
  /** Where this machine has the means. */
  readonly clock: MovableClock | undefined;
  readonly disk: SmallDisk | undefined;
  readonly starts: number;
  /** Its process now, or the last one. */
  readonly process: RunningProcess;
  start(): Promise<void>;
  kill(): Promise<void>;
  /** SIGTERM, as an operator would. */
  stop(): Promise<void>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Whatever was done to it: it runs again. */
  heal(): Promise<void>;
}

export interface ActorOptions {
  role: string;
  name: string;
  lines: Lines;
  spared?: readonly string[];
  awayMaxMs?: number | undefined;
  clock?: MovableClock | undefined;
  disk?: SmallDisk | undefined;
  /** How it is started for the n-th time. */
  spec(start: number): ProcessSpec;
  readyLine: RegExp;
}

const READY_MS = 90_000;
const STOP_MS = 40_000;

export function createActor({
  role,
  name,
  lines,
  spared = [],
  awayMaxMs = 7_000,
  clock,
  disk,
  spec,
  readyLine,
}: ActorOptions): Actor {
  let running: RunningProcess | undefined;
  let isUp = false;
  let isFrozen = false;
  let starts = 0;

  const current = (): RunningProcess => {
    if (!running) throw new Error(`${name} was never started`);
    return running;
  };

  async function start(): Promise<void> {
    if (isUp) return;
    // A store may be away at this moment, and a start then gives up: the next attempt finds it back.
    for (let attempt = 1; ; attempt++) {
      running = startProcess(spec(starts++));
      const ready = await running.waitForLine(readyLine, READY_MS).catch((error: Error) => error);
      isUp = !(ready instanceof Error);
      if (isUp) return;
      await running.kill9();
      if (attempt === 20) throw new Error(`${name} does not start: ${ready}`);
    }
  }

  async function thaw(): Promise<void> {
    if (!isFrozen) return;
    isFrozen = false;
    await current().thaw();
  }

  return {
    role,
    name,
    lines,
    spared,
    awayMaxMs,
    clock,
    disk,
    get starts() {
      return starts;
    },
    get process() {
      return current();
    },
    start,
    async kill() {
      isUp = false;
      isFrozen = false;
      await current().kill9();
    },
    async stop() {
      await thaw();
      isUp = false;
      await current().stop(STOP_MS);
    },
    async freeze() {
      if (!isUp || isFrozen) return;
      isFrozen = true;
      await current().freeze();
    },
    thaw,
    async heal() {
      await thaw();
      await start();
    },
  };
}
