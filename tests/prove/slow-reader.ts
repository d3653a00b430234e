import assert from "node:assert";
import type { Socket } from "node:net";
import type { CallResult } from "@tenure/protocol";
import { withClient } from "@tenure/testing/fleet/nonce-fleet";
import { connectRawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import {
  HOT_KINDS,
  type HotKind,
  type Instance,
  startFleet,
  startNode,
  type TestFleet,
  type TestNode,
  untilReady,
} from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const HIGH_WATER_MB = 8;
const ALLOWANCE_MB = 64;
const NODES = 40;

/** A node that does not read costs the server at most the high-water mark, and the other nodes nothing. */
export const slowReader: Proof = {
  name: "slow-reader",
  summary:
    "200 MB meant for a node that stopped reading: memory stays within the mark, others do not notice",
  async run({ size, seed, print }: ProofRun) {
    for (const hot of size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1)) {
      await runOn(hot, { size, seed, print: (line) => print(`${hot}: ${line}`) });
    }
  },
};

async function runOn(hot: HotKind, { size, print }: ProofRun): Promise<void> {
  const meantMb = size === "full" ? 200 : 40;
  const fleet = await startFleet(hot);
  const nodes: TestNode[] = [];
  try {
    const instance = await fleet.startInstance();
    for (let n = 0; n < NODES; n++) nodes.push(startNode([instance.url]));
    await untilReady(nodes);
    const quietMs = await askWhile(
      nodes[0]!,
      () => new Promise((resolve) => setTimeout(resolve, 1_500)),
    );
    const before = instance.rssMb();
    let result = { askedMb: 0, silently: true, peakMb: 0 };
    const besideMs = await askWhile(nodes[0]!, async () => {
      result = await askAndNeverRead({ fleet, instance, meantMb });
    });
    const grewMb = result.peakMb - before;
    print(`${result.askedMb.toFixed(0)} MB meant for a reader that stopped: cut off at the mark`);
    print(
      `resident ${before.toFixed(0)} MB, at most ${result.peakMb.toFixed(0)} MB (+${grewMb.toFixed(0)}, allowed ${HIGH_WATER_MB + ALLOWANCE_MB})`,
    );
    print(
      `another node's calls: p99 ${p99(quietMs).toFixed(1)} ms before, ${p99(besideMs).toFixed(1)} ms beside it`,
    );
    assert(
      !result.silently,
      "the reader was cut off for missed pings, not for what it left unread",
    );
    assert(grewMb <= HIGH_WATER_MB + ALLOWANCE_MB, `memory grew by ${grewMb} MB`);
    assert(
      nodes.every(({ epochs }) => epochs.length === 1),
      "another node lost its connection",
    );
  } finally {
    await Promise.all(nodes.map(({ connection }) => connection.close()));
    await fleet.stop();
  }
}

/** Requests the list of members again and again, and reads none of the replies until the server gives it up. */
async function askAndNeverRead({ fleet, instance, meantMb }: Ask) {
  const node = await connectRawNode({ url: instance.url });
  await node.register();
  const { result } = await node.call("member.list", {});
  const { members } = result as CallResult<"member.list">;
  assert(
    members.length > NODES,
    `the reply lists ${members.length} members, expected ${NODES + 1}`,
  );
  const listBytes = JSON.stringify(result).length;
  (node.socket as unknown as { _socket: Socket })._socket.pause();
  let asked = 0;
  let peakMb = 0;
  const left = async () => {
    peakMb = Math.max(peakMb, instance.rssMb());
    const { rows } = await withClient(fleet.postgres.uri(), (client) =>
      client.query("select online, left_silently from node_unit where address = $1", [
        node.key.address,
      ]),
    );
    return !rows[0].online && { silently: rows[0].left_silently as boolean };
  };
  while (asked * listBytes < meantMb * 1_048_576) {
    for (let n = 0; n < 50; n++, asked++)
      node.socket.send(JSON.stringify({ ...REQUEST, id: asked }), () => {});
    peakMb = Math.max(peakMb, instance.rssMb());
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  const { silently } = await until(left, { deadlineMs: 60_000, what: "the reader to be cut off" });
  node.socket.terminate();
  return { askedMb: (asked * listBytes) / 1_048_576, silently, peakMb };
}

interface Ask {
  fleet: TestFleet;
  instance: Instance;
  meantMb: number;
}

const REQUEST = { type: "request", method: "member.list", params: {} };

/** How long each call of this node takes while `work` is going on. */
async function askWhile({ connection }: TestNode, work: () => Promise<unknown>): Promise<number[]> {
  const tookMs: number[] = [];
  let working = true;
  const done = work().finally(() => {
    working = false;
  });
  while (working) {
    const askedAtMs = performance.now();
    await connection.call("member.list", {});
    tookMs.push(performance.now() - askedAtMs);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await done;
  return tookMs;
}

const p99 = (values: number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * 0.99)] ?? 0;
