import { describe, expect, test } from "vitest";
import type { Random } from "../../kernel/random.ts";
import { type Candidate, countExclusions, pickNode } from "./node-selection.ts";

const node = (nodeId: string, words: Partial<Candidate> = {}): Candidate => ({
  nodeId,
  online: true,
  draining: false,
  pools: new Set(["gpu"]),
  services: new Set(["whisper"]),
  capacity: 4,
  reserved: 0,
  unavailable: new Set(),
  ...words,
});

/** Returns these fractions, over and over. */
function loaded(...fractions: number[]): Random {
  let at = 0;
  return {
    bytes: (count) => Buffer.alloc(count),
    fraction: () => fractions[at++ % fractions.length]!,
  };
}

const never = loaded(0.999);
const always = loaded(0);

describe("choosing a node", () => {
  test("takes the least reserved share, not the fewest slots", () => {
    const small = node("small", { capacity: 2, reserved: 1 });
    const large = node("large", { capacity: 100, reserved: 10 });
    expect(pickNode([small, large], { tenant: "default", pool: "gpu" }, never)).toBe(large);
  });

  test("leaves the choice among equals to chance", () => {
    const nodes = [node("a"), node("b"), node("c")];
    expect(pickNode(nodes, { tenant: "default", pool: "gpu" }, never)?.nodeId).toBe("a");
    expect(pickNode(nodes, { tenant: "default", pool: "gpu" }, always)?.nodeId).toBe("c");
  });

  test("gives every equal the same chance", () => {
    const nodes = ["a", "b", "c", "d"].map((name) => node(name));
    const counts = new Map<string, number>();
    for (let i = 0; i < 4_000; i++) {
      const { nodeId } = pickNode(
        nodes,
        { tenant: "default", pool: "gpu" },
        { ...never, fraction: Math.random },
      )!;
      counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
    }
    for (const count of counts.values()) expect(count).toBeGreaterThan(700);
    expect(counts.size).toBe(4);
  });

  test("prefers a node that has not failed this job, however busy it is", () => {
    const failed = node("failed");
    const busy = node("busy", { reserved: 3 });
    const wanted = { tenant: "default", pool: "gpu", former: new Set(["failed"]) };
    expect(pickNode([failed, busy], wanted, never)).toBe(busy);
    expect(pickNode([failed], wanted, never)).toBe(failed);
  });

  test("no node is picked when all are excluded, and the reasons are counted", () => {
    const nodes = [
      node("gone", { online: false }),
      node("elsewhere", { pools: new Set(["cpu"]) }),
      node("leaving", { draining: true }),
      node("plain", { services: new Set() }),
      node("marked", { unavailable: new Set(["whisper"]) }),
      node("busy", { reserved: 4 }),
      node("busier", { reserved: 5 }),
    ];
    const wanted = { tenant: "default", pool: "gpu", service: "whisper" };
    expect(pickNode(nodes, wanted, never)).toBeUndefined();
    expect(countExclusions(nodes, wanted)).toEqual({
      offline: 1,
      not_in_pool: 1,
      draining: 1,
      service_missing: 1,
      service_unavailable: 1,
      full: 2,
    });
  });

  test("a job without a service is not kept from a node by a mark", () => {
    const marked = node("marked", { unavailable: new Set(["whisper"]), services: new Set() });
    expect(pickNode([marked], { tenant: "default", pool: "gpu" }, never)).toBe(marked);
  });

  test("a node without capacity is full", () => {
    expect(
      countExclusions([node("none", { capacity: 0 })], { tenant: "default", pool: "gpu" }),
    ).toEqual({ full: 1 });
  });
});
