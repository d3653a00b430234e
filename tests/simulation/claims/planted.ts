import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import type { Planted } from "./world.ts";

/** One protection off each. Where the design has two that cover for each other, both: one alone changes nothing. */
export const PLANTED: Record<string, Planted> = {
  "a claim that takes rows of others": {
    without: ["claim_sees_owner", "claim_sees_generation"],
  },
  "a claim that does not look at the term": { without: ["claim_sees_generation"] },
  "a claim that begins no new term": { without: ["claim_raises_generation"] },
  "a claim of a node that left": { without: ["claim_sees_caller"] },
  "a claim of a node that is drained": { without: ["claim_sees_drain"] },
  "a claim of a disabled row": { without: ["claim_sees_enabled"] },
  "a release that believes its caller": { without: ["release_sees_nodes"] },
  "a release that does not wait": { without: ["release_sees_patience"] },
  "a release in spite of the brake": { without: ["release_sees_brake"] },
  "a release by an instance that has just started": {
    releasesWhileSettling: true,
    spoil: thatNeverSettles,
  },
  "a node of policy none that claims and releases": {
    noneClaims: true,
    without: ["claim_sees_policy", "release_sees_policy"],
  },
  "a late close that ends the newer connection": { without: ["leave_sees_epoch"] },
  "a node without contact that goes on": { neverSelfStops: true },
  "a loop that claims twice in a pass": { spoil: thatClaimsTwice },
  "a loop that never releases": { spoil: (ports) => ({ ...ports, release: async () => [] }) },
  "a loop that never looks again": { spoil: thatLooksOnce },
};

/** What a node alone could do wrong: the statements must hold against it. */
export const HARMLESS: Record<string, Planted> = {
  "nodes of policy none that ask for everything": { noneClaims: true },
  "nodes that never believe their view unsettled": { spoil: thatNeverSettles },
};

function thatNeverSettles(ports: LoopPorts): LoopPorts {
  return {
    ...ports,
    async members() {
      const seen = await ports.members();
      return seen && { ...seen, view: "ready" };
    },
  };
}

function thatClaimsTwice(ports: LoopPorts): LoopPorts {
  return {
    ...ports,
    async claim(candidates) {
      const term = await ports.claim(candidates);
      await ports.claim(candidates.filter(({ id }) => id !== term.id)).catch(() => {});
      return term;
    },
  };
}

function thatLooksOnce(ports: LoopPorts): LoopPorts {
  let looks = 0;
  return { ...ports, members: async () => (++looks > 5 ? undefined : ports.members()) };
}
