import { randomUUID } from "node:crypto";
import { withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { Dimension } from "../dimension.ts";
import { many } from "../workloads/many.ts";
import type { World } from "../world.ts";

const DEAD = 1_000;

/** Machines that were there once, each with a key of its own, and left twenty hours ago. */
async function addDead({ postgres }: World, count: number): Promise<void> {
  await withClient(postgres.uri(), async (client) => {
    await client.query(
      `insert into node_unit (address, name, instance_id, boot_id, epoch, online, presence_expires_at, left_at, joined_at)
       select $1 || n, 'gone-' || n, 'gone', $1::uuid, 1, false, ago, ago, ago - interval '1 day'
         from generate_series(1, $2::int) n, (select now() - interval '20 hours' as ago) t`,
      [randomUUID(), count],
    );
    await client.query("analyze node_unit"); // as autovacuum does within a minute
  });
}

export const manyDimension: Dimension = {
  name: "many",
  summary:
    "1,000 and more dead node-units, 100 workers, 1,000 open turns: what they cost in rows and statements",
  workloads: [many],
  faults: ["dead.nodes"],
  ownFaults: [
    {
      card: { role: "dead", count: 1, fault: "nodes", lastsMs: [0, 0] },
      act: (world) => addDead(world, DEAD / 2),
    },
  ],
  seconds: 40,
  pace: { gapMs: [8_000, 10_000] },
  instances: 2,
  hot: "redis",
  prepare: (world) => addDead(world, DEAD),
};
