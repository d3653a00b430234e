import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import type { ProcessSpec } from "@tenure/testing/processes/process";
import type { LineName } from "./actor.ts";

/** Everything a program of a workload is told. It goes through a file, so it is plain JSON. */
export interface Scene {
  workload: string;
  /** Which of the programs of its role this is: `nonces-0`. */
  name: string;
  /** 0 at first, then one more with every start. */
  start: number;
  seed: number;
  historyFile: string;
  /** Instances, through a network the nemesis can break; and which mode of nonces each runs. */
  urls: string[];
  nonceModes: string[];
  /** Postgres, through a network of this program's own. */
  postgresUri: string;
  redis: { mode: "single" | "cluster"; urls: string[]; prefix: string };
  /** The build under test, where its server is in it, and where the suite's programs are that use its SDK. */
  buildRoot: string;
  serverDirectory: string;
  programsRoot: string;
  /** Where everything of the run is kept. */
  directory: string;
  presenceTtlMs: number;
  leaseTtlMs: number;
  /** How long it may take, in peace, until what was asked is settled, or work goes on. */
  settleMs: number;
}

/** How long a checker waits for one answer of a store: it reads much at once, and a busy machine takes its time. */
export const READ_MS = 120_000;

export interface LoadContext {
  scene: Scene;
  history: HistoryRecorder;
  /** Aborted when the load should end: what was begun is finished, and nobody leaves. */
  quiet: AbortSignal;
  /** What has to happen at SIGTERM before the process ends. */
  atStop(close: () => Promise<void>): void;
}

export interface SettleContext {
  scene: Scene;
  history: HistoryRecorder;
  /** What all programs of the workload have recorded so far. */
  events: RecordedEvent[];
  deadlineMs: number;
}

/** What a checker has to say. */
export interface Findings {
  /** Operations it looked at. */
  checked: number;
  /** One sentence each. */
  violations: string[];
  /** How often the hazards the promise is about have happened. None at all proves nothing. */
  reached: Record<string, number>;
}

/** Further processes of a workload that the nemesis may disturb. */
export interface Party {
  role: string;
  count: number;
  /** What it talks to, by ways of its own that the nemesis can break. */
  uses: readonly Exclude<LineName, "edge">[];
  /** Where it keeps its files: a disk of its own, where this machine has the means, that the nemesis can fill. */
  home?(scene: Scene): string;
  /** How long it may be dead or cut off at most; a few seconds, if not said. */
  awayMaxMs?: number;
  /** Faults of which nothing is promised for it. */
  spared?: readonly string[];
  /** It reads modules of the server from inside, so it never runs as an older version. */
  isNewestOnly?: boolean | undefined;
  start(scene: Scene): ProcessSpec;
  readyLine: RegExp;
}

/** One file: a program that records a history, and what must be true of it. */
export interface Workload {
  name: string;
  /** Of the design's I1 to I11. */
  promises: string;
  /** How many load programs run at once. */
  clients: number;
  /** What they talk to, by ways of their own that the nemesis can break. */
  uses: readonly Exclude<LineName, "edge">[];
  parties?: Party[];
  /** Its load reads modules of the server from inside, so it never runs as an older version. */
  isNewestOnly?: boolean;
  /** Whether its promises outlive the loss of everything in Redis. */
  survivesHotLoss: boolean;
  /** Whether its checker can tell right from wrong when the database's clock jumps: the others compare with ours. */
  survivesStoreClock?: boolean;
  /** Further programs of ours that parties may be. */
  programs?: Record<string, (context: LoadContext) => Promise<void>>;
  /** Until `quiet`, and then until nothing is under way. Connections it keeps open stay open. */
  load(context: LoadContext): Promise<void>;
  /** In peace: finds out what was unknown, and shows that work goes on. Throws when it does not. */
  settle(context: SettleContext): Promise<void>;
  /** What is in the stores at the end. */
  read(scene: Scene): Promise<unknown>;
  /**
   * What brings each hazard about: faults, as `--faults` names them, or nothing but the load. They are done oftener
   * while it has not been met.
   */
  hazards: Readonly<Record<string, readonly string[]>>;
  /** Only from the history and the stores. */
  check(events: RecordedEvent[], stores: never, scene: Scene): Findings;
}
