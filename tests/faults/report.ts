import { availableParallelism } from "node:os";
import type { Verdict } from "./suite.ts";

/** Everything that docs/reliability.md states about a run. */
export function report(verdict: Verdict, { directory }: { directory: string }): void {
  const { byWorkload, faultsByKind, violations, known, unreached, loadAverages } = verdict;
  for (const [name, { checked, reached, violations: own }] of Object.entries(byWorkload))
    console.log(
      `${name}: ${checked} operations checked, ${own.length} violations; ${listed(reached)}`,
    );
  const kinds = Object.entries(faultsByKind).filter(([, count]) => count > 0);
  console.log(
    `faults: ${verdict.faults} of ${kinds.length} kinds (${listed(Object.fromEntries(kinds))})`,
  );
  const never = Object.keys(faultsByKind).filter((kind) => faultsByKind[kind] === 0);
  if (never.length > 0) console.log(`faults never done: ${never.join(", ")}`);
  console.log(`settled in ${(verdict.settledMs / 1_000).toFixed(0)} s after the last fault`);
  const loads = loadAverages.map((load) => load.toFixed(1)).join(" and ");
  console.log(
    `machine: ${availableParallelism()} cores, load average ${loads} at the beginning and the end of the faults, Node ${process.version}`,
  );
  console.log(`histories and verdict: ${directory}`);
  for (const violation of violations) console.log(`VIOLATION  ${violation}`);
  for (const violation of known) console.log(`KNOWN  ${violation}`);
  for (const hazard of unreached) console.log(`NOT REACHED  ${hazard}`);
}

/** One line for the whole run; its figures are compared by the tests. */
export function summaryOf(verdicts: readonly Verdict[]): string {
  const sum = (of: (verdict: Verdict) => number) =>
    verdicts.reduce((total, verdict) => total + of(verdict), 0);
  const known = sum((verdict) => verdict.known.length);
  return [
    `${sum(({ operations }) => operations)} operations`,
    `${sum(({ faults }) => faults)} faults`,
    `${sum(({ violations }) => violations.length)} violations`,
    ...(known > 0 ? [`${known} of known causes`] : []),
    `${sum(({ unreached }) => unreached.length)} hazards not reached`,
  ].join(", ");
}

function listed(counts: Record<string, number>): string {
  return Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(", ");
}
