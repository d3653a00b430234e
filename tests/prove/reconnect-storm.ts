import assert from "node:assert";
import { createSessionConnection, type SessionConnection } from "@tenure/sdk";
import { freePort } from "@tenure/testing/processes/free-port";
import { until } from "@tenure/testing/until";
import {
  HOT_KINDS,
  type HotKind,
  type Instance,
  startFleet,
  startNode,
  untilReady,
} from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

/** Everybody loses the server at once and comes back at once. */
export const reconnectStorm: Proof = {
  name: "reconnect-storm",
  summary:
    "2,000 sockets connect, the instance restarts, all are back (goal 15 s); memory per idle socket",
  async run({ size, print }: ProofRun) {
    const sockets = size === "full" ? 2_000 : 150;
    for (const hot of size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1)) {
      const idleMs = size === "full" ? 20_000 : 0;
      await runOn(hot, { sockets, idleMs }, (line) => print(`${hot}: ${line}`));
    }
  },
};

async function runOn(
  hot: HotKind,
  { sockets, idleMs }: { sockets: number; idleMs: number },
  print: ProofRun["print"],
): Promise<void> {
  const fleet = await startFleet(hot);
  const port = await freePort();
  const sessions: Array<{ connection: SessionConnection; handshakesMs: number[] }> = [];
  try {
    let instance = await fleet.startInstance({ port });
    const emptyMb = await settledMb(instance, idleMs);
    const startedAtMs = performance.now();
    for (let n = 0; n < sockets; n++) sessions.push(startSession(instance.url));
    await everybodyIsBack(1);
    const firstMs = performance.now() - startedAtMs;
    const perSocketKb = (((await settledMb(instance, idleMs)) - emptyMb) * 1_024) / sockets;
    print(
      `${sockets} sessions connected in ${(firstMs / 1_000).toFixed(1)} s; ${perSocketKb.toFixed(1)} kB resident per idle socket (goal 30)`,
    );

    await instance.kill9();
    const killedAtMs = performance.now();
    instance = await fleet.startInstance({ port });
    const upMs = performance.now() - killedAtMs;
    const lag = watchLag(instance.url);
    await everybodyIsBack(2);
    const backMs = performance.now() - killedAtMs;
    const handshakes = sessions
      .map(({ handshakesMs }) => handshakesMs.at(-1)!)
      .sort((a, b) => a - b);
    print(
      `restart: server up after ${(upMs / 1_000).toFixed(1)} s, all ${sockets} back after ${(backMs / 1_000).toFixed(1)} s (goal 15), ` +
        `handshake p99 ${handshakes[Math.floor(sockets * 0.99)]!.toFixed(0)} ms, slowest health answer meanwhile ${(await lag()).toFixed(0)} ms, ` +
        `resident ${instance.rssMb().toFixed(0)} MB`,
    );
    assert(backMs < 60_000, "everybody is back");
    const node = startNode([instance.url]);
    await untilReady([node]);
    await node.connection.close();
  } finally {
    await Promise.all(sessions.map(({ connection }) => connection.close()));
    await fleet.stop();
  }

  async function everybodyIsBack(times: number): Promise<void> {
    const here = () => sessions.filter(({ handshakesMs }) => handshakesMs.length >= times).length;
    await until(() => here() === sockets, {
      deadlineMs: 120_000,
      everyMs: 20,
      what: `${sockets} sessions`,
    });
  }
}

/** Resident memory of an idle process: the least over a while, so that garbage not yet collected does not count. */
async function settledMb(instance: Instance, idleMs: number): Promise<number> {
  let leastMb = instance.rssMb();
  const untilMs = performance.now() + idleMs;
  while (performance.now() < untilMs) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    leastMb = Math.min(leastMb, instance.rssMb());
  }
  return leastMb;
}

function startSession(url: string) {
  const handshakesMs: number[] = [];
  let startedAtMs = performance.now();
  const connection = createSessionConnection({
    urls: [url],
    on: {
      state: (state) => {
        if (state === "connecting") startedAtMs = performance.now();
      },
      ready: () => void handshakesMs.push(performance.now() - startedAtMs),
    },
  });
  connection.start();
  return { connection, handshakesMs };
}

/** The slowest answer to a question that asks no store: what the loop's lag feels like from outside. */
function watchLag(url: string): () => Promise<number> {
  let slowestMs = 0;
  let watching = true;
  const done = (async () => {
    while (watching) {
      const askedAtMs = performance.now();
      await fetch(`${url}/health/live`).catch(() => {});
      slowestMs = Math.max(slowestMs, performance.now() - askedAtMs);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  return async () => {
    watching = false;
    await done;
    return slowestMs;
  };
}
