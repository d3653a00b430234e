import { expect, test } from "vitest";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { systemRandom } from "../../kernel/random.ts";
import type { TrackedJob } from "../job.ts";
import { createNodePool } from "../memory/node-pool.ts";
import { createTrackedJobs } from "../memory/tracked-jobs.ts";
import type { JobsParts } from "../parts.ts";
import { ALONE_WAIT_MS, createNodeChoice } from "./node-choice.ts";
import { NO_HANDOVER } from "./slot-handover.ts";

const POOL = "gpu";

/** Two nodes, the first less busy, and jobs that want one. */
function scene() {
  const clock = createManualClock();
  const nodePool = createNodePool({ clock });
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
  nodePool.refresh([node("idle"), node("busy")]);
  nodePool.counted("busy", 5);
  const ignore = () => {};
  const tracked = createTrackedJobs({ clock, onDue: ignore, onError: ignore });
  const turnNodes = new Map<string, string>();
  const parts = {
    clock,
    nodePool,
    tracked,
    random: systemRandom,
    settings: { affinityWaitMs: 1_000 },
  };
  const { choose } = createNodeChoice(parts as unknown as JobsParts, {
    handover: NO_HANDOVER,
    turns: { nodeOf: (turnId) => turnNodes.get(turnId), isDeciding: () => false },
  });
  const job = (jobId: string, words: Partial<TrackedJob> = {}): TrackedJob => {
    const whole = {
      jobId,
      pool: POOL,
      former: new Set(),
      attemptSinceMs: clock.monotonicMs(),
      tenant: "default",
      pendingTimeoutMs: 10_000,
      ...words,
    };
    tracked.track(whole as TrackedJob);
    return whole as TrackedJob;
  };
  return { clock, nodePool, turnNodes, choose, job };
}

test("jobs that lost a node get different nodes: one of them may have been the cause", () => {
  const { clock, choose, job } = scene();
  const [one, two, three] = ["one", "two", "three"].map((name) => job(name, { isSuspect: true }));
  expect(choose(one!).node?.nodeId).toBe("idle");
  expect(choose(two!).node?.nodeId).toBe("busy");
  expect(choose(three!)).toEqual({ wait: "not_now" });
  expect(choose(job("innocent")).node?.nodeId).toBe("idle");
  // It waits only so long.
  clock.advance(ALONE_WAIT_MS);
  expect(choose(three!).node?.nodeId).toBe("idle");
});

test("a job of a turn waits for the turn's node, and goes to another when its wait is over", () => {
  const { clock, nodePool, turnNodes, choose, job } = scene();
  turnNodes.set("turn", "busy");
  const speaking = job("speaking", { turnId: "turn" });
  expect([choose(speaking).node?.nodeId, speaking.affinity]).toEqual(["busy", "hit"]);
  nodePool.counted("busy", 10);
  expect(choose(speaking)).toEqual({ wait: { nodeId: "busy" } });
  clock.advance(1_001);
  expect([choose(speaking).node?.nodeId, speaking.affinity]).toEqual(["idle", "no_slot"]);
});
