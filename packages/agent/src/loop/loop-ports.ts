import type {
  CallResult,
  DeploymentTerm,
  ListedDeployment,
  Member,
  ViewState,
} from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import type { AgentLog } from "../log.ts";

/** The node-units that are connected, as far as this node knows. */
export interface MembersSnapshot {
  view: ViewState;
  members: ReadonlyMap<string, Member>;
}

/**
 * Everything the loop needs from outside, without sockets: the same loop runs against a server and, in a simulation,
 * against tables in memory with a simulated clock.
 *
 * Calls reject with a `TenureError`, and must do so within less than an interval.
 */
export interface LoopPorts {
  readonly me: string;
  readonly clock: Clock;
  /** At least 0, below 1. */
  readonly random: () => number;
  /** `undefined` while there is no connection. */
  members(): Promise<MembersSnapshot | undefined>;
  /** `owners`: those whose rows this node needs, where the server answers with a part of the list. */
  list(
    revision: string | undefined,
    owners: readonly string[],
  ): Promise<CallResult<"deployment.list">>;
  release(addresses: readonly string[]): Promise<readonly DeploymentTerm[]>;
  claim(candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm>;
  reserve(candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm>;
  /**
   * Called after every change of the list with the rows for this node: those it owns or takes over next, and every daemon.
   * `isFresh`: all of them were read after the last `invalidate`.
   */
  changed(rows: readonly ListedDeployment[], isFresh: boolean): void;
  /** Whether this node skips a row for now, because it has just failed to prepare it. */
  avoids(row: DeploymentTerm): boolean;
  log: AgentLog;
}
