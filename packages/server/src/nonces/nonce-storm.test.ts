import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import {
  expectCommit,
  newSignerModel,
  type SignerModel,
  seenOf,
} from "../../testing/nonce-model.ts";
import {
  asks,
  commit,
  IN_DEFAULT,
  LEASE_TTL_MS,
  RULES,
  withMistake,
} from "../../testing/nonces.ts";
import type { MarkEvent } from "./nonce.ts";
import type { Mark, SignerCommit } from "./store/nonce-store.ts";

// Three owners, one signer, any order of doings: every answer must be the model's. What the model does not say,
// because it takes several sessions at once, is in nonce-races.test.ts.

let store: TestDb;
beforeAll(async () => {
  store = await openServer();
});
afterAll(() => store.close());

const rules = { ...RULES, aheadMax: 6 };
const who = fc.constantFrom("a/1", "b/1", "c/1");
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constant("write" as const),
      who,
      /** The lease: taken and given back, taken and kept, or the term this owner had before. */
      lease: fc.constantFrom("basic", "keep", "keep", "remembered", "remembered"),
      /** Small numbers, so that ids and numbers meet again. */
      requests: fc.array(fc.tuple(fc.nat(9), fc.integer({ min: 1, max: 2 })), { maxLength: 3 }),
      marks: fc.array(
        fc.record({
          event: fc.constantFrom<MarkEvent>(
            "use",
            "recycle",
            "recycle",
            "resolve_consumed",
            "resolve_released",
          ),
          nonce: fc.nat(6),
          hold: fc.constantFrom("its own", "its own", "its own", "a former one", "nobody's"),
          hash: fc.constantFrom("0x1", "0x2"),
        }),
        { maxLength: 2 },
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      act: fc.constant("stall" as const),
      ms: fc.constantFrom(1_000, LEASE_TTL_MS + 1, rules.holdTtlMs),
    }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

async function storm(steps: Step[]): Promise<void> {
  const signer = `storm-${randomUUID()}`;
  const model = newSignerModel();
  const remembered = new Map<string, number>();
  for (const each of steps) {
    if (each.act === "stall") {
      model.nowMs += each.ms;
      await store.advance(each.ms);
      continue;
    }
    const write = toCommit(signer, each, model, remembered);
    const answer = await commit(store.db, write, { rules });
    expect(seenOf(answer)).toEqual(expectCommit(model, write, rules));
    if (answer.outcome === "done") remembered.set(each.who, answer.fencingToken);
  }
}

function toCommit(
  signer: string,
  { who: ownerNode, lease, requests, marks }: Extract<Step, { act: "write" }>,
  model: SignerModel,
  remembered: Map<string, number>,
): SignerCommit {
  const once = new Map(marks.map((mark) => [mark.nonce, mark]));
  const counts = new Map(requests);
  return {
    ...IN_DEFAULT,
    signer,
    ownerNode,
    fencingToken: lease === "remembered" ? remembered.get(ownerNode) : undefined,
    keepMs: lease === "basic" ? 0 : LEASE_TTL_MS,
    // The same id twice in one batch, now and then: `requests` may name it again.
    asks: requests.flatMap(([id]) => asks(counts.get(id), `r${id}`)),
    marks: [...once.values()].map(({ event, nonce, hold, hash }): Mark => {
      if (event.startsWith("resolve")) return { event, nonce };
      const holdId = holdOf(model, nonce, hold);
      return { event, nonce, holdId, ...(event === "use" && { txHash: hash }) };
    }),
  };
}

function holdOf(model: SignerModel, nonce: number, hold: string): string {
  const current = model.rows.get(nonce)?.holdId;
  const former = [...model.requests.values()]
    .flat()
    .find((each) => each.nonce === nonce && each.holdId !== current)?.holdId;
  const chosen = hold === "its own" ? current : hold === "a former one" ? former : undefined;
  return chosen ?? randomUUID();
}

const property = () =>
  fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 30, size: "max" }), storm);

test("I9, I10: whatever three owners do in turn, every answer is the model's", async () => {
  await fc.assert(property(), { numRuns: 60 });
});

const FENCE =
  "v_lease.owner_node <> p_owner_node or v_lease.fencing_token <> p_fencing_token or v_lease.expires_at <= v_now";

describe("the storm catches", () => {
  test.for<[string, [string, string][]]>([
    ["the fence off", [[FENCE, "false"]]],
    [
      "a fence with <= instead of =",
      [[FENCE, "not (p_fencing_token <= v_lease.fencing_token) or v_lease.expires_at <= v_now"]],
    ],
    [
      "a fence that compares with the last write instead of the lease",
      [
        [
          FENCE,
          "(select fencing_token from signer_nonce_state where signer = p_signer) > p_fencing_token",
        ],
      ],
    ],
    [
      "a fence that does not look at the clock",
      [[" or v_lease.expires_at <= v_now then", " then"]],
    ],
    [
      "a node's own clock",
      [
        [
          "v_now := tenure_now();",
          "v_now := tenure_now() + case p_owner_node when 'b/1' then interval '1 hour' else '0' end;",
        ],
      ],
    ],
    ["a mark without its hold", [["and (hold_id = v_mark.hold_id or v_mark.hold_id is null)", ""]]],
    [
      "the request id on the number's row",
      [
        [
          "and known.n = 0",
          `and known.n = 0 and exists (
             select from signer_nonce_allocation a where a.signer = p_signer and a.hold_id = known.hold_id)`,
        ],
        [
          "insert into signer_nonce_request (",
          `delete from signer_nonce_request as r where signer = p_signer and r.request_id = any(v_requests);
           insert into signer_nonce_request (`,
        ],
      ],
    ],
    [
      "a cursor moved by the size of the batch",
      [
        [
          "set next_local_nonce = v_next + v_inserted",
          "set next_local_nonce = v_next + jsonb_array_length(p_asks)",
        ],
      ],
    ],
    [
      "a quarantined number back in use",
      [
        [
          "status = 'RELEASED' order by nonce limit coalesce",
          "status in ('RELEASED', 'QUARANTINED') order by nonce limit coalesce",
        ],
      ],
    ],
  ])("%s", async ([, mistakes]) => {
    const found = await withMistake(store.db, mistakes, () =>
      fc.check(property(), { numRuns: 300, endOnFailure: true, seed: 7 }),
    );
    expect(found.failed).toBe(true);
    // By its answers, or by the schema's own keys and checks; not because the mistake is no SQL.
    const { name, code } = found.errorInstance as { name: string; code?: string };
    expect(code ?? name).toMatch(/^(AssertionError|23\d\d\d)$/);
  });
});
