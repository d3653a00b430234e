import type { RecordedEvent } from "@tenure/testing/history";
import { startsOf } from "../checkers/programs.ts";
import { checkVersions } from "../checkers/versions.ts";
import { programsOf } from "../history-of.ts";
import type { Workload } from "../workload.ts";

/**
 * Programs of these workloads that ran in two versions side by side. It makes no load: it reads what the suite
 * records of every start.
 */
export function versionsOf(workloads: readonly Workload[]): Workload {
  const roles = workloads.flatMap(({ name, parties = [] }) => [
    name,
    ...parties.map(({ role }) => role),
  ]);
  const inBoth = ["instance", ...roles].map((role) => [`${role}_in_both`, [`${role}.swap`]]);
  return {
    name: "versions",
    promises: "I11, with versions n and n+1 side by side",
    clients: 0,
    uses: [],
    survivesHotLoss: true,
    survivesStoreClock: true,
    load: async () => {},
    settle: async () => {},
    hazards: { upgrades: ["swap"], downgrades: ["swap"], ...Object.fromEntries(inBoth) },
    read: async (scene) => programsOf(scene),
    check: (_, programs: RecordedEvent[]) => checkVersions(startsOf(programs)),
  };
}
