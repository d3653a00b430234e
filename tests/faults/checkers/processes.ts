import type { RecordedEvent } from "@tenure/testing/history";
import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Violations } from "./operations.ts";

/** A process of a deployment, as long as it is known to have lived: it may have lived a little longer. */
export interface Life {
  id: string;
  generation: number;
  pid: number;
  node: string;
  startNs: number;
  lastNs: number;
}

export interface DeployedRow {
  id: string;
  type: string;
  address: string;
  generation: number;
  lost_after_ms: number;
}

export interface OwnerEntry {
  id: string;
  address: string;
}

export interface ProcessRules {
  /** From so long on nobody may start a row before the former owner's process has ended. */
  strictFromMs: number;
  /** How long two may overlap where nothing is promised but a bound. */
  overlapMaxMs: number;
  /** Addresses of nodes with the policy `none`. */
  passive: readonly string[];
}

/** The lives of processes, from what each said of itself while it lived. */
export function livesOf(
  events: readonly RecordedEvent[],
  nodeOf: (directory: string) => string,
): Life[] {
  const said = events.filter(({ f }) => f === "alive");
  const value = (event: RecordedEvent) =>
    event.value as { id: string; generation: number; pid: number; directory: string };
  const groups = groupBy(said, (event) => `${event.process} ${value(event).id}`);
  return [...groups.values()].map((own) => {
    const { id, generation, pid, directory } = value(own[0]!);
    const times = own.map(({ time }) => time);
    return {
      ...{ id, generation, pid, node: nodeOf(directory) },
      startNs: Math.min(...times),
      lastNs: Math.max(...times),
    };
  });
}

/** I1, I2, I3 as processes: one per row and node, no overlap where that is promised, and `none` owns nothing. */
export function checkProcesses(
  lives: readonly Life[],
  { rows, owners }: { rows: readonly DeployedRow[]; owners: readonly OwnerEntry[] },
  rules: ProcessRules,
): Findings {
  const violations = createViolations();
  const types = new Map(rows.map((row) => [row.id, row]));
  const reached = { takeovers: 0, restarts: 0, daemon_restarts: 0 };
  for (const [id, own] of groupBy(lives, (life) => life.id)) {
    const row = types.get(id);
    const inOrder = [...own].sort((a, b) => a.startNs - b.startNs);
    checkTwins(id, inOrder, violations);
    if (row?.type === "daemon") {
      reached.daemon_restarts += inOrder.length - new Set(inOrder.map(({ node }) => node)).size;
      continue;
    }
    reached.takeovers += new Set(inOrder.map(({ generation }) => generation)).size - 1;
    reached.restarts += inOrder.length - new Set(inOrder.map(({ generation }) => generation)).size;
    const isStrict = (row?.lost_after_ms ?? 0) >= rules.strictFromMs;
    checkOverlap(id, inOrder, isStrict ? 0 : rules.overlapMaxMs, violations);
  }
  for (const { id, address } of owners)
    if (rules.passive.includes(address))
      violations.add(`${id} was claimed by ${address}, whose policy is none`);
  for (const { id, type, address } of rows)
    if (type === "daemon" && address !== "") violations.add(`daemon ${id} has an owner`);
  return { checked: lives.length, violations: violations.all, reached };
}

/** Two processes of one row on one node at the same time, whatever the row and however short. */
function checkTwins(id: string, lives: readonly Life[], violations: Violations): void {
  for (const [node, own] of groupBy(lives, (life) => life.node))
    for (const [index, life] of own.entries()) {
      const former = own.slice(0, index).find(({ lastNs }) => lastNs > life.startNs);
      if (former) violations.add(`${id}: ${former.pid} and ${life.pid} ran on ${node} at once`);
    }
}

function checkOverlap(
  id: string,
  lives: readonly Life[],
  overlapMaxMs: number,
  violations: Violations,
): void {
  for (const [index, life] of lives.entries())
    for (const former of lives.slice(0, index)) {
      if (former.node === life.node) continue;
      const overlapMs = (Math.min(former.lastNs, life.lastNs) - life.startNs) / 1e6;
      if (overlapMs > overlapMaxMs)
        violations.add(
          `${id}: ran on ${former.node} (generation ${former.generation}) and ${life.node} (${life.generation}) for ${Math.round(overlapMs)} ms, ${overlapMaxMs} are allowed`,
        );
    }
}

/** At rest: every deployment runs once, where it is owned and in its term; every daemon once on every node. */
export function checkRunning(
  alive: readonly Life[],
  rows: readonly (DeployedRow & { owner: string })[],
  nodes: readonly string[],
): string[] {
  const violations = createViolations();
  const byId = groupBy(alive, ({ id }) => id);
  for (const row of rows) {
    const own = byId.get(row.id) ?? [];
    const where = own.map(({ node }) => node).sort();
    if (row.type === "daemon") {
      if (where.join() !== [...nodes].sort().join())
        violations.add(`daemon ${row.id} runs on ${where.join(", ") || "no node"}`);
    } else if (where.length !== 1 || where[0] !== row.owner)
      violations.add(
        `${row.id} is owned by ${row.owner || "nobody"} and runs on ${where.join(", ") || "no node"}`,
      );
    else if (own[0]?.generation !== row.generation)
      violations.add(`${row.id} runs in term ${own[0]?.generation}, its term is ${row.generation}`);
  }
  return violations.all;
}
