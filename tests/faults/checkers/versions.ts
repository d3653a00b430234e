import type { Findings } from "../workload.ts";
import { groupBy } from "./operations.ts";
import type { ProgramEvent } from "./programs.ts";

/**
 * Counts what was mixed. Every role that may run in both versions did, and some programs came back newer and some
 * older than they went. Nothing here can be violated: what the other version breaks, the other checkers find.
 */
export function checkVersions(all: readonly ProgramEvent[]): Findings {
  const starts = all.filter(({ of }) => of > 1);
  const changes = [...groupBy(starts, ({ name }) => name).values()].flatMap((own) => {
    const inOrder = [...own].sort((a, b) => a.start - b.start);
    return inOrder.slice(1).map(({ version }, index) => inOrder[index]!.version - version);
  });
  const inBoth = [...groupBy(starts, ({ role }) => role)].map(([role, own]) => {
    const counts = [0, 1].map((each) => own.filter(({ version }) => version === each).length);
    return [`${role}_in_both`, Math.min(...counts)] as const;
  });
  return {
    checked: starts.length,
    violations: [],
    reached: {
      upgrades: changes.filter((change) => change > 0).length,
      downgrades: changes.filter((change) => change < 0).length,
      ...Object.fromEntries(inBoth),
    },
  };
}
