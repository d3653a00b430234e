import type {
  CallResult,
  DeploymentReport,
  ListedDeployment,
  LogSelection,
  Unfitness,
} from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import type { LogFollower } from "../logs/log-follower.ts";
import type { LogLimits } from "../logs/log-writer.ts";
import type { RunAs } from "../run-as.ts";
import type { Backoff } from "./backoff.ts";

/** One deployment that this node has something to do with. */
export interface DesiredDeployment {
  /** With `args` and `env`: the server gives them for whatever is wanted here. */
  row: ListedDeployment;
  /**
   * `run`: installed, started and kept running. `prepare`: installed only, because this node takes it over next.
   * `hold`: stopped and not started again, because another node takes it over now.
   */
  mode: "run" | "prepare" | "hold";
  /** Why this node may not run it: reported as `refused`, never installed or started. */
  refused: readonly Unfitness[];
}

/** Runs what is wanted on this machine, and nothing else. */
export interface Executor {
  /** Everything that is wanted here. Whatever runs and is not named is stopped. Costs little when nothing changed. */
  setDesired(all: readonly DesiredDeployment[]): void;
  /**
   * Stops the children of type `deployment` and starts none until `resume`; daemons go on. A child that runs and that
   * `mayGoOn` names goes on too.
   */
  suspend(reason: string, mayGoOn?: (row: ListedDeployment) => boolean): void;
  resume(): void;
  /** Says the state of everything again, for a server that may have missed it. */
  reportAll(): void;
  /** Stops one and starts it again. Throws `NOT_FOUND` when it is not wanted here. */
  restart(deploymentId: string): Promise<void>;
  readLog(selection: LogSelection): Promise<CallResult<"log.read">>;
  /**
   * Gives the lines asked for and then every new one, until the signal. Resolves when following has begun. A follower
   * that answers with a promise gets the next lines when it is fulfilled.
   */
  followLog(selection: LogSelection, follower: LogFollower): Promise<void>;
  /** Processes that live now. */
  running(): readonly RunningChild[];
  /** Stops every child, daemons too, and waits for their end. */
  stop(): Promise<void>;
}

export interface RunningChild {
  deploymentId: string;
  generation: number;
  pid: number;
}

export interface ExecutorOptions {
  dataDir: string;
  /** `TENURE_URL` of the children. */
  tenureUrl: string;
  stopGraceMs: number;
  startConcurrencyMax: number;
  /** No limit unless given. */
  packagesMaxMb?: number;
  /** For ever unless given, or 0. */
  workKeepDays?: number;
  /** The users of the children; the agent's own unless given. */
  runAs?: RunAs;
  /** What every child is started by; see `NODE_UNIT_WRAPPER`. */
  wrapper?: readonly string[];
  /** The umask of children and of npm; without it they have the agent's. */
  childUmask?: number;
  /** Every change of state. Must not throw; whoever gets it sends it, and sends the newest again after a reconnect. */
  report(report: DeploymentReport): void;
  log(line: ExecutorLog): void;
  clock?: Clock;
  /** What npm gets of the agent's environment, without the agent's own settings; `process.env` unless given. */
  env?: NodeJS.ProcessEnv;
  /** For tests. */
  tuning?: ExecutorTuning;
}

export interface ExecutorTuning {
  backoff?: Backoff;
  logs?: LogLimits;
  /** A child that is still there after so long counts as started. */
  startedAfterMs?: number;
}

export interface ExecutorLog {
  level: "info" | "warn" | "error";
  event: string;
  message: string;
  details?: Readonly<Record<string, unknown>>;
}
