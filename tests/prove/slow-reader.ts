import assert from "node:assert";
import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import { challengeText, ServerToNode } from "@tenure/protocol";
import { createTestNodeKey } from "@tenure/testing/fleet/node-key";
import { WebSocket } from "ws";
import {
  HOT_KINDS,
  type HotKind,
  type Instance,
  startFleet,
  startNode,
  type TestNode,
  untilReady,
} from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const HIGH_WATER_MB = 8;
const ALLOWANCE_MB = 64;

/** Whoever does not read costs the server no more than the high-water mark, and the others nothing. */
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
    for (let n = 0; n < 40; n++) nodes.push(startNode([instance.url]));
    await untilReady(nodes);
    const quietMs = await askWhile(
      nodes[0]!,
      () => new Promise((resolve) => setTimeout(resolve, 1_500)),
    );
    const before = instance.rssMb();
    let result = { askedMb: 0, code: 0, peakMb: 0 };
    const besideMs = await askWhile(nodes[0]!, async () => {
      result = await askAndNeverRead({ instance, meantMb });
    });
    const grewMb = result.peakMb - before;
    print(
      `${result.askedMb.toFixed(0)} MB meant for a reader that stopped: cut off with ${result.code}`,
    );
    print(
      `resident ${before.toFixed(0)} MB, at most ${result.peakMb.toFixed(0)} MB (+${grewMb.toFixed(0)}, allowed ${HIGH_WATER_MB + ALLOWANCE_MB})`,
    );
    print(
      `another node's calls: p99 ${p99(quietMs).toFixed(1)} ms before, ${p99(besideMs).toFixed(1)} ms beside it`,
    );
    assert(result.code !== 0, "the reader was cut off");
    assert(grewMb <= HIGH_WATER_MB + ALLOWANCE_MB, `memory grew by ${grewMb} MB`);
    assert(
      nodes.every(({ epochs }) => epochs.length === 1),
      "nobody else lost their connection",
    );
  } finally {
    await Promise.all(nodes.map(({ connection }) => connection.close()));
    await fleet.stop();
  }
}

/** Asks for the list of members again and again, and reads none of the answers. */
async function askAndNeverRead({ instance, meantMb }: { instance: Instance; meantMb: number }) {
  const { socket, listBytes } = await connect(instance.url);
  const closed = new Promise<number>((resolve) => socket.once("close", resolve));
  const transport = (socket as unknown as { _socket: Socket })._socket;
  transport.pause();
  let asked = 0;
  let peakMb = 0;
  let open = true;
  void closed.then(() => {
    open = false;
  });
  while (asked * listBytes < meantMb * 1_048_576 && open) {
    for (let n = 0; n < 50; n++, asked++) socket.send(call(asked), () => {});
    peakMb = Math.max(peakMb, instance.rssMb());
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  transport.resume(); // so that this end hears that it was cut off
  const giveUp = setTimeout(() => socket.terminate(), 20_000);
  const code = await closed;
  clearTimeout(giveUp);
  peakMb = Math.max(peakMb, instance.rssMb());
  return { askedMb: (asked * listBytes) / 1_048_576, code, peakMb };
}

const call = (id: number): string =>
  JSON.stringify({ type: "request", id, method: "member.list", params: {} });

async function connect(url: string): Promise<{ socket: WebSocket; listBytes: number }> {
  const key = createTestNodeKey();
  const boot_id = randomUUID();
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws/node`);
  socket.on("error", () => {});
  const hear = (): Promise<string> =>
    new Promise((resolve) => socket.once("message", (data) => resolve(data.toString())));
  const challenge = ServerToNode.parse(JSON.parse(await hear()));
  assert(challenge.type === "node_challenge");
  const text = challengeText({ ...challenge, address: key.address, boot_id });
  const signature = Buffer.from(key.signBytes(Buffer.from(text))).toString("base64");
  const description = { name: "slow", version: "0", tags: {} };
  socket.send(
    JSON.stringify({
      type: "node_register",
      protocol_version: 1,
      address: key.address,
      boot_id,
      signature,
      ...description,
    }),
  );
  await hear();
  socket.send(call(0));
  return { socket, listBytes: (await hear()).length };
}

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
