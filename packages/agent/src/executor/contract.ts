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

/** One deployment that belongs on this node, and what the executor does with it. */
export interface DesiredDeployment {
  /** With `args` and `env`: the server adds them for rows of this node. */
  row: ListedDeployment;
  /**
   * `run`: install, start and keep running. `prepare`: install only, because this node takes it over next. `hold`: stop and
   * do not start again, because another node takes it over now.
   */
  mode: "run" | "prepare" | "hold";
  /** Why this node may not run the row: it is reported as `refused`, and neither installed nor started. */
  refused: readonly Unfitness[];
}

/** Runs the desired deployments on this machine, and nothing else. */
export interface Executor {
  /** Replaces the desired deployments. Children of others are stopped. Cheap when nothing changed. */
  setDesired(all: readonly DesiredDeployment[]): void;
  /**
   * Stops the children of type `deployment` and starts none until `resume`; daemons run on. A running child whose row
   * `mayGoOn` accepts runs on too.
   */
  suspend(reason: string, mayGoOn?: (row: ListedDeployment) => boolean): void;
  resume(): void;
  /** Repeats the report of every deployment, for a server that may have missed it. */
  reportAll(): void;
  /** Stops a child and starts it again. Throws `NOT_FOUND` when the deployment is not desired here. */
  restart(deploymentId: string): Promise<void>;
  readLog(selection: LogSelection): Promise<CallResult<"log.read">>;
  /**
   * Passes the selected lines and then every new one to the follower, until its signal. Resolves when following has begun.
   * A follower that returns a promise gets the next lines when it is fulfilled.
   */
  followLog(selection: LogSelection, follower: LogFollower): Promise<void>;
  /** The children that are alive. */
  running(): readonly RunningChild[];
  /** Stops every child, also daemons, and waits for their end. */
  stop(): Promise<void>;
}

export interface RunningChild {
  deploymentId: string;
  generation: number;
  pid: number;
}

/** Reads the values of the secrets of a deployment, by their names, from the server. */
export type ReadSecrets = (term: {
  deploymentId: string;
  generation: number;
}) => Promise<Readonly<Record<string, string>>>;

export interface ExecutorOptions {
  dataDir: string;
  /** `TENURE_URL` of the children, asked at each start. */
  tenureUrl: string | (() => string);
  /** The CA of that server, if it has a private one. */
  tenureCaFile?: string | undefined;
  stopGraceMs: number;
  startConcurrencyMax: number;
  /** No limit by default. */
  packagesMaxMb?: number;
  /** Always by default, and for 0. */
  workKeepDays?: number;
  /** The users of the children; the agent's own by default. */
  runAs?: RunAs;
  /** The program that starts each child; see `NODE_UNIT_WRAPPER`. */
  wrapper?: readonly string[];
  /** The umask of children and of npm; the agent's by default. */
  childUmask?: number;
  /** Reads the values of secrets; by default there are none. */
  readSecrets?: ReadSecrets;
  /** Called for every change of state. Must not throw. */
  report(report: DeploymentReport): void;
  log(line: ExecutorLog): void;
  clock?: Clock;
  /** The source of npm's environment; `process.env` by default. */
  env?: NodeJS.ProcessEnv;
  /** For tests. */
  tuning?: ExecutorTuning;
}

export interface ExecutorTuning {
  backoff?: Backoff;
  logs?: LogLimits;
  /** A child that is alive after so long counts as started. */
  startedAfterMs?: number;
}

export interface ExecutorLog {
  level: "info" | "warn" | "error";
  event: string;
  message: string;
  details?: Readonly<Record<string, unknown>>;
}
