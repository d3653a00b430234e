import type {
  CallResult,
  DeploymentTerm,
  ListedDeployment,
  Member,
  ViewState,
} from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import type { AgentLog } from "../log.ts";

/** Who is there, as far as this node knows. */
export interface MembersSeen {
  view: ViewState;
  members: ReadonlyMap<string, Member>;
}

/**
 * Everything the loop needs from outside. No sockets here: the same loop runs against a server, and in a simulation
 * against an arbiter in memory with a clock of its own.
 *
 * Calls reject with a `TenureError`, and must do so within less than an interval.
 */
export interface LoopPorts {
  readonly me: string;
  readonly clock: Clock;
  /** At least 0, below 1. */
  readonly random: () => number;
  /** `undefined` while there is no connection. */
  members(): Promise<MembersSeen | undefined>;
  list(revision: string | undefined): Promise<CallResult<"deployment.list">>;
  release(addresses: readonly string[]): Promise<readonly DeploymentTerm[]>;
  claim(candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm>;
  reserve(candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm>;
  /**
   * The rows that concern this node, whenever the list has changed: what it owns, takes over next, every daemon.
   * `isFresh`: all of it was read after the loop was last told to distrust what it had.
   */
  changed(rows: readonly ListedDeployment[], isFresh: boolean): void;
  /** Whether this node should leave a row alone for now, because it failed at it a moment ago. */
  avoids(row: DeploymentTerm): boolean;
  log: AgentLog;
}
