import type { HistoryRecorder } from "@tenure/testing/history";
import type { TestHost } from "@tenure/testing/processes/hosts";
import {
  type Exit,
  type ProcessSpec,
  type RunningProcess,
  startProcess,
} from "@tenure/testing/processes/process";
import type { FaultProxy } from "@tenure/testing/processes/proxy";
import type { MovableClock } from "@tenure/testing/programs/faketime";
import type { SmallDisk } from "@tenure/testing/stores/small-disk";
import type { Build } from "./build.ts";
import type { ProgramEvent } from "./checkers/programs.ts";

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
  /** In runs on several hosts, where this machine has the means: the first link of an instance leads to the stores. */
  readonly host: TestHost | undefined;
  readonly starts: number;
  /** Its process now, or the last one. */
  readonly process: RunningProcess;
  /** In the version that is due; another one can be named. */
  start(build?: Build): Promise<void>;
  /** Those it can run as; the checkout first. */
  readonly builds: readonly Build[];
  /** What it runs as, or ran last. */
  readonly build: Build;
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
  host?: TestHost | undefined;
  /** Those it can run as; the checkout first. */
  builds: readonly Build[];
  /** Which of them the n-th start is, where nothing else is asked for. */
  versionOf(start: number): number;
  /** Where its starts and stops are recorded, for checkers. */
  history: HistoryRecorder;
  /** How it is started for the n-th time. */
  spec(start: number, build: Build): ProcessSpec;
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
  host,
  builds,
  versionOf,
  history,
  spec,
  readyLine,
}: ActorOptions): Actor {
  let running: RunningProcess | undefined;
  let isUp = false;
  let isFrozen = false;
  let starts = 0;
  let build = builds[0]!;

  const current = (): RunningProcess => {
    if (!running) throw new Error(`${name} was never started`);
    return running;
  };

  function record(type: "invoke" | "ok" | "info", f: "start" | "stop", exit?: Exit): void {
    const version = builds.indexOf(build);
    const value: ProgramEvent = {
      role,
      name,
      start: starts - 1,
      version,
      of: builds.length,
      ...exit,
    };
    history.record({ process: name, type, f, value });
  }

  async function start(wanted?: Build): Promise<void> {
    if (isUp) return;
    // A store may be away at this moment, and a start then gives up: the next attempt finds it back.
    for (let attempt = 1; ; attempt++) {
      build = wanted ?? builds[versionOf(starts)]!;
      running = startProcess(spec(starts++, build));
      record("invoke", "start");
      const ready = await running.waitForLine(readyLine, READY_MS).catch((error: Error) => error);
      isUp = !(ready instanceof Error);
      if (isUp) return record("ok", "start");
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
    host,
    get starts() {
      return starts;
    },
    get process() {
      return current();
    },
    start,
    builds,
    get build() {
      return build;
    },
    async kill() {
      isUp = false;
      isFrozen = false;
      record("info", "stop");
      await current().kill9();
    },
    async stop() {
      await thaw();
      isUp = false;
      record("invoke", "stop");
      record("ok", "stop", await current().stop(STOP_MS));
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
