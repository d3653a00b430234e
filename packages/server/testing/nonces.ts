import { randomUUID } from "node:crypto";
import {
  type CommitAnswer,
  commitNonces,
  type NonceRules,
  type SignerAccess,
  type SignerCommit,
} from "../src/nonces/store/nonce-store.ts";
import type { Db } from "../src/store/db.ts";
import { sql } from "../src/store/sql.ts";

export const LEASE_TTL_MS = 10_000;
export const HOLD_TTL_MS = 40_000;
export const RULES: NonceRules = {
  holdTtlMs: HOLD_TTL_MS,
  holdExpiry: "quarantine",
  aheadMax: 1_000,
};

/** The access of a caller of tenant `default` that may open signers. */
export const IN_DEFAULT: SignerAccess = { tenant: "default", opensIn: "default" };

export type Done = Extract<CommitAnswer, { outcome: "done" }>;

/** One signer's write, with nothing in it but what the test names. Basic unless it keeps the lease. */
export async function commit(
  db: Db,
  { signer, ...given }: Partial<SignerCommit> & { signer: string },
  { waitMs, rules = RULES }: { waitMs?: number; rules?: NonceRules } = {},
): Promise<CommitAnswer> {
  const whole = { ownerNode: "a/1", fencingToken: undefined, keepMs: 0, marks: [], asks: [] };
  const commits = [{ ...whole, ...IN_DEFAULT, signer, ...given }];
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
 * Puts a mistake into the schema's own function while `work` runs: what a test catches with it, it would catch in a
 * change of ours. The text to replace must be there, so that a mistake that no longer fits is noticed.
 */
export async function withMistake<T>(
  db: Db,
  mistakes: readonly (readonly [text: string, instead: string])[],
  work: () => Promise<T>,
): Promise<T> {
  const { rows } = await db.query<{ body: string }>(
    sql`select pg_get_functiondef('nonce_commit'::regproc) as body`,
  );
  const original = rows[0]!.body;
  let planted = original;
  for (const [text, instead] of mistakes) {
    if (!planted.includes(text)) throw new Error(`nonce_commit does not say: ${text}`);
    planted = planted.replaceAll(text, instead);
  }
  await db.script(planted);
  try {
    return await work();
  } finally {
    await db.script(original);
  }
}
