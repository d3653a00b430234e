import assert from "node:assert";
import { createSeeded } from "@tenure/testing/seeded";
import { WebSocket } from "ws";
import { HOT_KINDS, type HotKind, listNodes, startFleet, startNode, untilReady } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** Frames made to hurt: the process lives, memory is bounded, nothing is written, only the sender is closed. */
export const fuzzFrames: Proof = {
  name: "fuzz-frames",
  summary:
    "10,000 hostile frames: the process lives, memory stays, nothing is written, others go on",
  async run({ size, seed, print }: ProofRun) {
    for (const hot of size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1)) {
      await runOn(hot, { size, seed, print: (line) => print(`${hot}: ${line}`) });
    }
  },
};

async function runOn(hot: HotKind, { size, seed, print }: ProofRun): Promise<void> {
  const frames = size === "full" ? 10_000 : 600;
  const random = createSeeded(seed).fraction;
  const fleet = await startFleet(hot);
  try {
    const instance = await fleet.startInstance();
    const bystander = startNode([instance.url]);
    await untilReady([bystander]);
    await attack({ url: instance.url, frames: Math.min(500, frames), random }); // warm-up, so that growth is growth
    const before = instance.rssMb();
    const closed = await attack({ url: instance.url, frames, random });
    const after = instance.rssMb();
    const ready = await fetch(`${instance.url}/health/ready`);
    const listed = await listNodes(instance.url);
    print(
      `${frames} hostile frames on ${closed.sockets} sockets (seed ${seed}); closed with ${JSON.stringify(closed.codes)}`,
    );
    print(
      `resident ${before.toFixed(0)} MB before, ${after.toFixed(0)} MB after; ${listed.length} node listed (the bystander)`,
    );
    assert.equal(ready.status, 200, "the server is still ready");
    assert.deepEqual(
      listed.map(({ node_id }) => node_id),
      [bystander.key.address],
      "nothing was written",
    );
    assert.equal(bystander.epochs.length, 1, "the bystander's socket was not touched");
    assert(after < before + 100, `memory grew from ${before} to ${after} MB`);
    await bystander.connection.close();
  } finally {
    await fleet.stop();
  }
}

interface Closed {
  sockets: number;
  codes: Record<string, number>;
}

async function attack({
  url,
  frames,
  random,
}: {
  url: string;
  frames: number;
  random: () => number;
}): Promise<Closed> {
  const result: Closed = { sockets: 0, codes: {} };
  let sent = 0;
  while (sent < frames) {
    const path = random() < 0.5 ? "/ws/node" : "/ws/session";
    const socket = new WebSocket(url.replace("http", "ws") + path);
    socket.on("error", () => {});
    const closed = new Promise<number>((resolve) => socket.once("close", resolve));
    await new Promise<void>((resolve) => socket.once("open", resolve));
    result.sockets += 1;
    for (let n = 0; n < 40 && sent < frames && socket.readyState === WebSocket.OPEN; n++, sent++) {
      const frame = hostileFrame(random);
      socket.send(frame.bytes, { binary: frame.binary });
      if (n % 8 === 7) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    if (socket.readyState === WebSocket.OPEN) socket.ping();
    const timer = setTimeout(() => socket.terminate(), 2_000);
    const code = await closed;
    clearTimeout(timer);
    result.codes[code] = (result.codes[code] ?? 0) + 1;
  }
  return result;
}

const TYPES = [
  "node_register",
  "node_heartbeat",
  "job_result",
  "request",
  "session_init",
  "job_submit",
  "__proto__",
  "constructor",
  "",
  "job_assign",
];
const VALUES: Array<(random: () => number) => string> = [
  () => "null",
  () => "9007199254740993",
  () => "-1e309",
  () => '"\\u0000"',
  () => '"\\ud800"',
  (random) => `"${"x".repeat(Math.floor(random() * 5_000))}"`,
  () => '{"__proto__":{"admin":true}}',
  () => "[[[[[[[[[[]]]]]]]]]]",
  (random) => "[".repeat(200 + Math.floor(random() * 5_000)),
  (random) => `${'{"a":'.repeat(2_000 + Math.floor(random() * 4_000))}1${"}".repeat(10)}`,
];
const FIELDS = [
  "protocol_version",
  "address",
  "boot_id",
  "signature",
  "seq",
  "running",
  "payload",
  "job_id",
  "attempt_id",
  "params",
  "method",
  "id",
  "tags",
  "__proto__",
];

function hostileFrame(random: () => number): { bytes: Buffer; binary: boolean } {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const kind = random();
  if (kind < 0.1)
    return {
      bytes: Buffer.from(Array.from({ length: 64 }, () => Math.floor(random() * 256))),
      binary: random() < 0.5,
    };
  if (kind < 0.13) return { bytes: Buffer.alloc(1_048_577, 0x20), binary: false };
  if (kind < 0.2) return { bytes: Buffer.from(pick(VALUES)(random)), binary: false };
  const fields = Array.from(
    { length: Math.floor(random() * 6) },
    () => `"${pick(FIELDS)}":${pick(VALUES)(random)}`,
  );
  return {
    bytes: Buffer.from(`{${[`"type":"${pick(TYPES)}"`, ...fields].join(",")}}`),
    binary: false,
  };
}
