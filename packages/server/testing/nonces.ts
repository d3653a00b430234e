import { randomUUID } from "node:crypto";
import {
  type CommitAnswer,
  commitNonces,
  type NonceRules,
  type SignerCommit,
} from "../src/nonces/nonce-store.ts";
import type { Db } from "../src/store/db.ts";

export const LEASE_TTL_MS = 10_000;
export const HOLD_TTL_MS = 40_000;
export const RULES: NonceRules = {
  holdTtlMs: HOLD_TTL_MS,
  holdExpiry: "quarantine",
  aheadMax: 1_000,
};

export type Done = Extract<CommitAnswer, { outcome: "done" }>;

/** One signer's write, with nothing in it but what the test names. Basic unless it keeps the lease. */
export async function commit(
  db: Db,
  { signer, ...given }: Partial<SignerCommit> & { signer: string },
  { waitMs, rules = RULES }: { waitMs?: number; rules?: NonceRules } = {},
): Promise<CommitAnswer> {
  const whole = { ownerNode: "a/1", fencingToken: undefined, keepMs: 0, marks: [], asks: [] };
  const commits = [{ ...whole, signer, ...given }];
  const [answer] = await commitNonces(db, { commits, waitMs, rules });
  return answer!;
}

export async function commitDone(...args: Parameters<typeof commit>): Promise<Done> {
  const answer = await commit(...args);
  if (answer.outcome !== "done") throw new Error(`the commit ended as ${answer.outcome}`);
  return answer;
}

/** A request for `count` numbers, under a new id unless one is given. */
export function asks(count = 1, requestId: string = randomUUID()) {
  return Array.from({ length: count }, (_, n) => ({ requestId, n, holdId: randomUUID() }));
}

/**
 * Puts a mistake into the schema's own function: what a property test catches with it, it would catch in a change
 * of ours. The text to replace must be there, so that a mistake that no longer fits is noticed.
 */
export async function plant(
  db: Db,
  mistakes: [text: string | RegExp, instead: string][],
): Promise<void> {
  const { rows } = await db.query<{ body: string }>({
    name: "",
    text: "select pg_get_functiondef('nonce_commit'::regproc) as body",
    values: [],
  });
  let body = rows[0]!.body;
  for (const [text, instead] of mistakes) {
    const changed = body.replaceAll(text instanceof RegExp ? new RegExp(text, "g") : text, instead);
    if (changed === body) throw new Error(`nonce_commit has no ${text}`);
    body = changed;
  }
  await db.script(body);
}
