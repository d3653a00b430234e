import { systemClock } from "../kernel/clock.ts";
import { systemRandom } from "../kernel/random.ts";
import { every } from "../kernel/service.ts";
import { connect, type RedisSettings } from "./redis-connection.ts";

const PROBE_INTERVAL_MS = 5_000;
const PROBE_LIMIT_MS = 2_000;

export interface Subscriber {
  subscribe(channel: string, listener: (message: string) => void): Promise<void>;
  /** Probes now: the other connection was lost, so this one may be lost as well. */
  probeNow(): void;
  close(): Promise<void>;
}

/**
 * Pub/Sub on a connection of its own.
 *
 * It sends no commands, so nothing shows that it was cut off without a reset. Every few seconds a message is published
 * on a channel that only this subscriber knows; when it does not arrive, the connection is made again. That also finds
 * a node of a Cluster that answers but is cut off from the other nodes.
 */
export function createSubscriber(
  settings: RedisSettings,
  publish: (channel: string, message: string) => Promise<void>,
): Subscriber {
  const connection = connect(settings, { autoPipelining: false });
  const probeChannel = `${settings.prefix}:probe:${systemRandom.bytes(8).toString("hex")}`;
  let onProbe = () => {};
  const listeners = new Map<string, Array<(message: string) => void>>([
    [probeChannel, [() => onProbe()]],
  ]);
  connection.on("message", (channel: string, message: string) => {
    for (const listener of listeners.get(channel) ?? []) listener(message);
  });
  // Without an offline queue a subscription before the connection is up would be refused, so it is made,
  // and made again, whenever the connection is ready.
  connection.on("ready", () => {
    connection.subscribe(...listeners.keys()).catch((error) => settings.onError?.(error));
  });

  async function probe(signal: AbortSignal): Promise<void> {
    if (connection.status !== "ready") return;
    const arrived = new AbortController();
    let isHeard = false;
    onProbe = () => {
      isHeard = true;
      arrived.abort();
    };
    await publish(probeChannel, "");
    if (!isHeard)
      await systemClock.sleep(PROBE_LIMIT_MS, AbortSignal.any([arrived.signal, signal]));
    if (isHeard || signal.aborted || connection.status !== "ready") return;
    settings.onError?.(new Error(`the subscriber received nothing for ${PROBE_LIMIT_MS} ms`));
    connection.disconnect(true);
  }

  // A publish that fails does not concern this connection, and is reported by the connection it was sent on.
  const probing = every(PROBE_INTERVAL_MS, probe, { clock: systemClock, onError: () => {} });
  probing.start();

  return {
    async subscribe(channel, listener) {
      listeners.set(channel, [...(listeners.get(channel) ?? []), listener]);
      if (connection.status === "ready") await connection.subscribe(channel);
    },
    probeNow: () => probing.wake(),
    async close() {
      connection.disconnect();
      await probing.stop();
    },
  };
}
