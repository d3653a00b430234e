import type { Card, Pace, PlannedFault } from "./schedule.ts";
import type { HotKind } from "./stores.ts";
import type { Workload } from "./workload.ts";
import type { World, WorldExtras } from "./world.ts";

/**
 * One kind of trouble, with the load and the checkers that show what it breaks. Each runs in a world of its own, because
 * the checkers of one are wrong under the faults of another: a clock moved by 400 days ends every lease.
 *
 * To add one: a file in `dimensions/`, a line in `dimensions.ts`, a planted bug in `plants.ts` for each new checker, and
 * a row in docs/reliability.md. `--help`, `--dimensions` and the short run of the tests follow from the list.
 */
export interface Dimension {
  name: string;
  /** For `--help`. */
  summary: string;
  /** Its load and its checkers, hazards included. */
  workloads: readonly Workload[];
  /** Names as in `--faults`; empty for every fault that makes sense for its workloads. */
  faults: readonly string[];
  /** Faults that only this dimension has. */
  ownFaults?: readonly OwnFault[];
  /** Load and faults in the short run of the tests, and the least in any run. */
  seconds: number;
  pace?: Pace;
  instances?: number;
  /** Only where it needs one of them. */
  hot?: HotKind;
  /** What is different about its world: settings of the instances, what stands before the stores. */
  world?: WorldExtras;
  /** Runs when all instances are up and before any load. */
  prepare?(world: World): Promise<void>;
  /** Violations that are known and open. They are counted and printed, and do not make the run red. */
  known?: readonly KnownViolation[];
}

export interface OwnFault {
  /** `fault` must not contain a hyphen unless its first part is the name of a line. */
  card: Card;
  act(world: World, planned: PlannedFault): Promise<void>;
}

export interface KnownViolation {
  /** Matches the violation of this one cause and no other. */
  pattern: RegExp;
  /** What is broken, and what has to happen before this entry goes. */
  reason: string;
}

/** What a run takes from its dimension. */
export const settingsOf = ({
  workloads,
  faults,
  ownFaults,
  pace,
  world,
  prepare,
  known,
}: Dimension) => ({ ...world, workloads, faults, ownFaults, pace, prepare, known });
