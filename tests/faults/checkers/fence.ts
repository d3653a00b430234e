import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation, type Violations } from "./operations.ts";

/** One write under a lease. `token: null` asks for a term; else it is the term the writer believes in. */
export interface FencedAsk {
  signer: string;
  owner: string;
  token: number | null;
}

export interface FencedAnswer {
  outcome: "done" | "fenced" | "held" | "busy";
  token?: number;
  /** The number this write was given: its place in the order of commits. */
  nonce?: number;
  acquired?: string | null;
}

export interface FencedRow {
  signer: string;
  nonce: number;
  token: number;
}

type Write = Operation<FencedAsk, FencedAnswer>;
type Done = Write & { answered: Required<Pick<FencedAnswer, "token" | "nonce">> };

/**
 * Whether a register that is written under a fence is linearizable (I10).
 *
 * Every write that took effect got the next number, and says under which term. So there is only one order to try:
 * that of the numbers. It is a linearization when no write comes before one that had ended before it began, when the
 * term never falls along it, and when each term has one owner. Writes whose end is unknown may fill the gaps.
 */
export function checkFence(writes: readonly Write[], rows: readonly FencedRow[]): Findings {
  const violations = createViolations();
  const reached = { takeovers: 0, stale_writes_refused: 0, unknown_outcomes: 0 };
  for (const { type, answered, asked } of writes) {
    if (type !== "ok") reached.unknown_outcomes += 1;
    else if (answered.outcome === "fenced" && asked.token !== null)
      reached.stale_writes_refused += 1;
    else if (answered.acquired === "taken_over") reached.takeovers += 1;
  }
  const bySigner = groupBy(writes, ({ asked }) => asked.signer);
  for (const [signer, all] of bySigner) {
    const done = all.filter(isDone).sort((a, b) => a.answered.nonce - b.answered.nonce);
    checkOrder(signer, done, violations);
    const stored = rows.filter((row) => row.signer === signer);
    checkRows(signer, all, stored, violations);
  }
  return { checked: writes.length, violations: violations.all, reached };
}

const isDone = (write: Write): write is Done =>
  write.type === "ok" && write.answered.outcome === "done" && write.answered.nonce !== undefined;

function checkOrder(signer: string, done: readonly Done[], violations: Violations): void {
  const owners = new Map<number, string>();
  let latestStart: Done | undefined;
  for (const [index, write] of done.entries()) {
    const { token, nonce } = write.answered;
    const before = done[index - 1];
    if (before?.answered.nonce === nonce)
      violations.add(`${signer}: number ${nonce} was written twice`);
    if (before && before.answered.token > token)
      violations.add(
        `${signer}: term ${token} wrote number ${nonce} after term ${before.answered.token} had written ${before.answered.nonce}`,
      );
    if (write.asked.token !== null && write.asked.token !== token)
      violations.add(`${signer}: a write of term ${write.asked.token} was done under ${token}`);
    if (latestStart && write.endNs < latestStart.startNs)
      violations.add(
        `${signer}: number ${nonce} had ended before ${latestStart.answered.nonce}, which is smaller, began`,
      );
    const owner = owners.get(token) ?? write.asked.owner;
    if (owner !== write.asked.owner)
      violations.add(`${signer}: term ${token} has two owners, ${owner} and ${write.asked.owner}`);
    owners.set(token, owner);
    if (!latestStart || write.startNs > latestStart.startNs) latestStart = write;
  }
}

/** What is stored is what was answered, and what nobody was answered is no more than what is unknown. */
function checkRows(
  signer: string,
  writes: readonly Write[],
  rows: readonly FencedRow[],
  violations: Violations,
): void {
  const stored = new Map(rows.map((row) => [row.nonce, row.token]));
  const done = writes.filter(isDone);
  for (const { answered } of done)
    if (stored.get(answered.nonce) !== answered.token)
      violations.add(
        `${signer}: number ${answered.nonce} was answered under term ${answered.token} and is stored under ${stored.get(answered.nonce) ?? "none"}`,
      );
  const unknown = writes.filter(({ type }) => type === "info").length;
  if (stored.size > done.length + unknown)
    violations.add(
      `${signer}: ${stored.size} writes are stored, ${done.length} were answered and ${unknown} are unknown`,
    );
  const ordered = [...rows].sort((a, b) => a.nonce - b.nonce);
  for (const [index, row] of ordered.entries()) {
    if (row.nonce !== index) {
      violations.add(`${signer}: number ${index} is missing`);
      return;
    }
    const before = ordered[index - 1];
    if (before && before.token > row.token)
      violations.add(`${signer}: number ${row.nonce} is stored under a term older than the last`);
  }
}
