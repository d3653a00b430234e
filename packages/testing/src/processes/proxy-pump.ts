import type { Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";

/** What is wrong with one direction. Shared and live: a change counts for bytes already waiting. */
export interface Faults {
  delayMs: number;
  swallow: boolean;
  bytesPerSecond: number;
}

export const noFaults: Readonly<Faults> = {
  delayMs: 0,
  swallow: false,
  bytesPerSecond: Number.POSITIVE_INFINITY,
};

export interface Pump {
  /** It has swallowed something. From then on it swallows everything: a stream has no holes. */
  readonly hasLost: boolean;
  /** Swallows everything from now on. */
  lose(): void;
}

const waitingBytesMax = 1 << 20;
const stepMs = 20;

/** Carries bytes, and the end of the stream, from one socket to the other. */
export function createPump({
  from,
  to,
  faults,
  inspect,
}: {
  from: Socket;
  to: Socket;
  faults: Faults;
  inspect: (bytes: Buffer) => "pass" | "swallow";
}): Pump {
  const waiting: { bytes: Buffer | "end"; arrivedAt: number }[] = [];
  let waitingBytes = 0;
  let isBusy = false;
  let hasLost = false;

  from.on("data", (bytes) => {
    waitingBytes += bytes.length;
    if (waitingBytes > waitingBytesMax) from.pause();
    arrive(bytes);
  });
  from.on("end", () => arrive("end"));
  from.on("error", () => {
    if (faults.swallow || hasLost) hasLost = true;
    else to.resetAndDestroy();
  });

  function arrive(bytes: Buffer | "end"): void {
    waiting.push({ bytes, arrivedAt: performance.now() });
    if (!isBusy) void carryAll();
  }

  async function carryAll(): Promise<void> {
    isBusy = true;
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      while (performance.now() < next.arrivedAt + faults.delayMs) await wait(stepMs);
      await carry(next.bytes);
      waitingBytes -= next.bytes.length;
      if (waitingBytes <= waitingBytesMax) from.resume();
    }
    isBusy = false;
  }

  async function carry(bytes: Buffer | "end"): Promise<void> {
    hasLost ||= faults.swallow || (bytes !== "end" && inspect(bytes) === "swallow");
    if (hasLost || to.destroyed) return;
    if (bytes === "end") to.end();
    else await writeSlowly(bytes);
  }

  async function writeSlowly(bytes: Buffer): Promise<void> {
    for (let sent = 0; sent < bytes.length && !to.destroyed; ) {
      const size = Math.max(1, Math.floor((faults.bytesPerSecond * stepMs) / 1000));
      const slice = bytes.subarray(sent, sent + size);
      sent += slice.length;
      if (!to.write(slice)) await drained(to);
      if (sent < bytes.length) await wait(stepMs);
    }
  }

  return {
    get hasLost() {
      return hasLost;
    },
    lose() {
      hasLost = true;
    },
  };
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      socket.off("drain", done);
      socket.off("close", done);
      resolve();
    };
    socket.on("drain", done);
    socket.on("close", done);
  });
}
