import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { startProxy } from "@tenure/testing/processes/proxy";
import { createSeeded } from "@tenure/testing/seeded";
import { until } from "@tenure/testing/until";
import {
  countEvents,
  HOT_KINDS,
  type HotKind,
  listNodes,
  startFleet,
  startNode,
  type TestNode,
  untilReady,
} from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** A connection that ends late, or does not end at all, never costs the newer one its place. */
export const lateClose: Proof = {
  name: "late-close",
  summary:
    "an old socket that closes late removes nobody (200 timings); a half-open one is a LEAVE in time",
  async run({ size, seed, print }: ProofRun) {
    const rounds = size === "full" ? 200 : 20;
    for (const hot of size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1)) {
      await runOn(hot, { rounds, size, seed, print: (line) => print(`${hot}: ${line}`) });
    }
  },
};

/** Two missed pings and some room: a test run shares its machine, and needs more of it. */
const LEAVE_LIMIT_MS = { full: 20_000, ci: 60_000 };

interface Rounds extends ProofRun {
  rounds: number;
}

async function runOn(hot: HotKind, { rounds, size, seed, print }: Rounds): Promise<void> {
  const random = createSeeded(seed).fraction;
  const fleet = await startFleet(hot);
  try {
    const [a, b] = await Promise.all([fleet.startInstance(), fleet.startInstance()]);
    const { port } = new URL(a.url);
    const proxy = await startProxy({ targetPort: Number(port) });
    const bootId = randomUUID();
    for (let round = 0; round < rounds; round++) {
      const old: TestNode = startNode([round % 2 === 0 ? a.url : b.url], { bootId });
      await untilReady([old]);
      const newest = startNode([round % 3 === 0 ? a.url : b.url], { bootId, key: old.key });
      await pause(random() * 15);
      void old.connection.close(); // before, while or after the newer one registers
      await untilReady([newest]);
      await pause(random() * 15);
      const { address } = old.key;
      const epoch = newest.epochs.at(-1)!;
      const stands = async () => {
        const node = (await listNodes(b.url)).find(({ node_id }) => node_id === address);
        return node?.online && node.epoch >= epoch;
      };
      await until(stands, { what: `the newer connection to stand in round ${round}` });
      await newest.connection.close();
    }
    print(`${rounds} timings (seed ${seed}): the newer connection stood every time`);

    const silent = startNode([`http://127.0.0.1:${proxy.port}`]);
    await untilReady([silent]);
    proxy.blackHole("both");
    const cutAtMs = performance.now();
    const { address } = silent.key;
    await until(async () => (await countEvents(b.url, "node.left", address)) > 0, {
      deadlineMs: 90_000,
      everyMs: 50,
      what: "the LEAVE of the half-open node",
    });
    const tookMs = performance.now() - cutAtMs;
    print(
      `half-open connection: LEAVE after ${(tookMs / 1_000).toFixed(1)} s (limit: two missed pings, 15 s)`,
    );
    assert(tookMs < LEAVE_LIMIT_MS[size], "noticed within the ping limit");
    await silent.connection.close();
    await proxy.stop();
  } finally {
    await fleet.stop();
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
