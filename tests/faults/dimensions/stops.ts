import { setTimeout as wait } from "node:timers/promises";
import type { Actor } from "../actor.ts";
import type { Dimension, OwnFault } from "../dimension.ts";
import { nonces } from "../workloads/nonces.ts";
import { stops } from "../workloads/stops.ts";
import type { World } from "../world.ts";

const INSTANCES = 2;

/** What an orderly reboot does: SIGTERM to all of them in one instant, and all of them back after a while. */
async function restart(actors: readonly Actor[], awayMs: number): Promise<void> {
  await Promise.all(actors.map((actor) => actor.stop()));
  await wait(awayMs);
  await Promise.all(actors.map((actor) => actor.start()));
}

const machine = ({ instances, parties }: World, index: number): Actor[] => {
  const named = (role: string) => parties.filter((party) => party.role === role)[index];
  const found = [instances[index], named("stop-unit"), named("stop-worker")];
  return found.filter((actor) => actor !== undefined);
};

const together: readonly OwnFault[] = [
  {
    card: { role: "fleet", count: 1, fault: "stop", lastsMs: [500, 3_000], isAlone: true },
    act({ instances, parties }, { forMs }) {
      const quick = parties.filter(({ role }) => role !== "slow-unit");
      return restart([...instances, ...quick], forMs);
    },
  },
  {
    card: {
      role: "machine",
      count: INSTANCES,
      fault: "stop",
      lastsMs: [500, 3_000],
      isAlone: true,
    },
    act: (world, { forMs, target }) => restart(machine(world, target), forMs),
  },
  {
    // A stop in the moment it has joined, when timers and answers of the start are still under way.
    card: { role: "joined-unit", count: 1, fault: "stop", lastsMs: [200, 1_000], isAlone: true },
    async act({ parties }, { forMs }) {
      const unit = parties.filter(({ role }) => role === "stop-unit").at(-1)!;
      await restart([unit], forMs);
      await restart([unit], forMs);
    },
  },
];

export const stopsDimension: Dimension = {
  name: "stops",
  summary:
    "SIGTERM of instances, node-units, workers and clients, alone and all at once, with free capacity",
  workloads: [stops, nonces],
  faults: ["stop"],
  ownFaults: together,
  seconds: 40,
  instances: INSTANCES,
  // The default: nothing that stops in good order may have to wait until its presence runs out.
  world: { instanceEnv: { TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: "45" } },
  // One stop at a time, mostly: what is checked is that there was a free place.
  pace: { gapMs: [2_500, 5_000] },
};
