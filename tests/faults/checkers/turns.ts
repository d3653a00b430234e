import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation } from "./operations.ts";

export interface TurnAsk {
  /** The turn as its session sees it, and the job's place in it. */
  turn: string;
  place: number;
  /** Submitted while nothing was disturbed, and long after it: then the promise holds without an if. */
  in_peace: boolean;
}

export interface TurnAnswer {
  turn_id?: string | undefined;
  node_id?: string | undefined;
  outcome: string;
}

export type TurnJob = Operation<TurnAsk, TurnAnswer>;

/**
 * From here on a time limit of the server may have moved a job (5 s for an acknowledgement), and the machine was not at
 * peace but out of breath.
 */
const OUT_OF_BREATH_NS = 4e9;

/** I8: a turn has one name, no other turn has it, and in peace its jobs go to one node. */
export function checkTurns(jobs: readonly TurnJob[]): Findings {
  const violations = createViolations();
  // One that ended before it had joined its turn went nowhere: its submitter died, and nobody was there to run it.
  const answered = jobs.filter(
    ({ type, answered }) => type === "ok" && (answered.turn_id ?? answered.node_id) !== undefined,
  );
  const owners = new Map<string, string>();
  let moved = 0;
  let peaceful = 0;
  for (const [turn, own] of groupBy(answered, ({ asked }) => asked.turn)) {
    const ids = new Set(own.map(({ answered }) => answered.turn_id ?? "none"));
    if (ids.size > 1) violations.add(`turn ${turn} has ${ids.size} names: ${[...ids].join(", ")}`);
    for (const id of ids) {
      const other = owners.get(id);
      if (other !== undefined && id !== "none")
        violations.add(`turns ${other} and ${turn} are both ${id}`);
      owners.set(id, turn);
    }
    const nodes = new Set(own.map(({ answered }) => answered.node_id).filter((node) => node));
    if (nodes.size > 1) moved += 1;
    if (!own.every(isInPeace)) continue;
    peaceful += 1;
    if (ids.has("none")) violations.add(`turn ${turn} has a job that belongs to no turn`);
    if (nodes.size > 1)
      violations.add(`turn ${turn} went to ${nodes.size} nodes although nothing was disturbed`);
  }
  return {
    checked: jobs.length,
    violations: violations.all,
    reached: { turns: owners.size, turns_in_peace: peaceful, turns_that_had_to_move: moved },
  };
}

const isInPeace = ({ asked, startNs, endNs }: TurnJob): boolean =>
  asked.in_peace && endNs - startNs < OUT_OF_BREATH_NS;
