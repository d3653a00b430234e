import assert from "node:assert";
import type { RunningProcess } from "@tenure/testing/processes/process";
import { startRedis } from "@tenure/testing/stores/redis";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { type Account, createInboxScene } from "./inbox-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** I7 with real processes: whatever happens to the reader, every message is accounted for. */
export const inbox: Proof = {
  name: "inbox",
  summary:
    "messages to an instance that is frozen, comes back, is killed and replaced: none is lost",
  async run(run) {
    const redis = await startRedis();
    const cluster = await startRedisCluster();
    try {
      await prove({ mode: "single", urls: [redis.url] }, run);
      await prove({ mode: "cluster", urls: cluster.urls }, run);
    } finally {
      await Promise.all([redis.discard(), cluster.stop()]);
    }
  },
};

const VICTIM = "i-victim";
const SUCCESSOR = "i-successor";

async function prove(
  redis: { mode: "single" | "cluster"; urls: string[] },
  { size, seed, print }: ProofRun,
): Promise<void> {
  const count = size === "full" ? 10_000 : 300;
  const scene = await createInboxScene(redis, { count, seed });
  const startedMs = performance.now();
  const running: RunningProcess[] = [];
  try {
    await scene.ownedBy(VICTIM);
    const victim = await scene.startInstance(VICTIM);
    running.push(victim);
    // Frozen while it reads: some are in its hands then, neither done nor free.
    const sending = scene.send(VICTIM, 0.14);
    await scene.untilEffects(0.02);
    await victim.freeze();
    await sending;
    await scene.send(VICTIM, 0.7); // more than its inbox may hold
    await scene.untilAbsent(VICTIM);
    const frozen = await scene.backlog(VICTIM);

    // Its owner is the frozen one still, so they wait; then its nodes and sessions connect to the new one.
    running.push(await scene.startInstance(SUCCESSOR));
    await scene.ownedBy(SUCCESSOR);
    await scene.untilBacklog(VICTIM, frozen * 0.7);
    await victim.thaw();
    const thawed = await scene.backlog(VICTIM);
    await scene.send(VICTIM, 0.08);
    await victim.kill9();
    const killed = await scene.backlog(VICTIM);
    await scene.send(VICTIM, 0.08); // by senders who have not heard of its death
    await scene.untilBacklog(VICTIM, 0);
    await scene.untilBacklog(SUCCESSOR, 0);

    const account = await scene.account();
    const tookS = ((performance.now() - startedMs) / 1_000).toFixed(1);
    print(`${redis.mode}: ${describe(account)}; ${tookS} s`);
    print(
      `${redis.mode}: in its inbox when presence ran out ${frozen}, when it came back ${thawed}, when it was killed ${killed}`,
    );
    assert.deepEqual(account.missing, [], "messages that are nowhere");
    assert.deepEqual(account.twofold, [], "messages that were refused and are yet somewhere");
    await scene.clearAway(VICTIM);
    print(`${redis.mode}: its dead letters discarded, the dead instance is off the list`);
  } finally {
    await Promise.all(running.map((process) => process.kill9()));
    await scene.close();
  }
}

function describe(account: Account): string {
  const { sent, effects, repeated, superseded, refused, letters, missing } = account;
  const dead = Object.entries(letters).map(([reason, count]) => `${count} ${reason}`);
  return [
    `${sent} messages`,
    `${effects} took effect (${repeated} effects repeated)`,
    `${superseded} superseded`,
    `${refused} refused to their sender`,
    `dead letters: ${dead.join(", ") || "none"}`,
    `${missing.length} missing`,
  ].join(", ");
}
