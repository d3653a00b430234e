import { expect, test } from "vitest";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { systemRandom } from "../../kernel/random.ts";
import type { JobsContext } from "../context.ts";
import { createRoster } from "../memory/node-pool.ts";
import { createBook, type LiveJob } from "../memory/tracked-jobs.ts";
import { ALONE_WAIT_MS, createChoosing } from "./node-choice.ts";
import { NOTHING_ELSEWHERE } from "./slot-handover.ts";

const POOL = "gpu";

/** Two nodes, the first less busy, and jobs that want one. */
function scene() {
  const clock = createManualClock();
  const roster = createRoster({ clock });
  const node = (node_id: string) =>
    ({
      node_id,
      instance_id: "i",
      epoch: 1,
      online: true,
      draining: false,
      pools: [POOL],
      services: [],
      capacity: 10,
    }) as never;
  roster.refresh([node("idle"), node("busy")]);
  roster.counted("busy", 5);
  const book = createBook();
  const turnNodes = new Map<string, string>();
  const context = {
    clock,
    roster,
    book,
    random: systemRandom,
    settings: { affinityWaitMs: 1_000 },
    elsewhere: NOTHING_ELSEWHERE,
  };
  const { choose } = createChoosing(context as unknown as JobsContext, {
    nodeOf: (turnId) => turnNodes.get(turnId),
    isDeciding: () => false,
  });
  const job = (jobId: string, words: Partial<LiveJob> = {}): LiveJob => {
    const whole = {
      jobId,
      pool: POOL,
      former: new Set(),
      attemptSinceMs: clock.monotonicMs(),
      tenant: "default",
      pendingTimeoutMs: 10_000,
      ...words,
    };
    book.add(whole as LiveJob);
    return whole as LiveJob;
  };
  return { clock, roster, turnNodes, choose, job };
}

test("jobs that lost a node are kept apart: one of them may have been the cause", () => {
  const { clock, choose, job } = scene();
  const [one, two, three] = ["one", "two", "three"].map((name) => job(name, { isSuspect: true }));
  expect(choose(one!).node?.nodeId).toBe("idle");
  expect(choose(two!).node?.nodeId).toBe("busy");
  expect(choose(three!)).toEqual({ wait: "not_now" });
  expect(choose(job("innocent")).node?.nodeId).toBe("idle");
  // It does not wait for ever.
  clock.advance(ALONE_WAIT_MS);
  expect(choose(three!).node?.nodeId).toBe("idle");
});

test("a job of a turn waits for the turn's node, and goes elsewhere when its patience is at an end", () => {
  const { clock, roster, turnNodes, choose, job } = scene();
  turnNodes.set("turn", "busy");
  const speaking = job("speaking", { turnId: "turn" });
  expect([choose(speaking).node?.nodeId, speaking.affinity]).toEqual(["busy", "hit"]);
  roster.counted("busy", 10);
  expect(choose(speaking)).toEqual({ wait: { nodeId: "busy" } });
  clock.advance(1_001);
  expect([choose(speaking).node?.nodeId, speaking.affinity]).toEqual(["idle", "no_slot"]);
});
