import { randomUUID } from "node:crypto";
import { every, type Service } from "../kernel/service.ts";
import type { RedisStore } from "../store/redis.ts";
import { adoptInboxes } from "./adoption.ts";
import type { Delivery, DeliveryOptions } from "./contract.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createInFlight } from "./in-flight.ts";
import { openInbox, retireInbox } from "./inbox-lifecycle.ts";
import { listInboxes, markInbox } from "./inbox-registry-store.ts";
import { createInboxScan } from "./inbox-scan.ts";
import { type InboxView, readBacklog, readTime } from "./inbox-store.ts";
import { expireLetters } from "./letter-store.ts";
import { createReader } from "./reader.ts";
import { createSender } from "./sender.ts";
import { createStoreTime } from "./store-time.ts";

const ERROR_PAUSE_MS = 200;

/** Delivery between instances over Redis Streams, single or Cluster. */
export function createRedisDelivery(options: DeliveryOptions & { store: RedisStore }): Delivery {
  const { store, instanceId, settings, clock, log, telemetry, receive, route } = options;
  const { stream_group: group, dlq_scan_interval_ms: scanIntervalMs } = settings;
  const inbox: InboxView = { instanceId, group, consumer: instanceId };
  const time = createStoreTime(clock, () => readTime(store, instanceId));
  const nowMs = () => time.read();

  const { send, sendIf } = createSender({ hot: store, settings, telemetry });
  const inFlight = createInFlight(settings.stream_count);
  const context = { hot: store, instanceId, settings, log, telemetry, receive, route, send };
  const scan = createInboxScan({ context, inFlight, idleMinMs: scanIntervalMs });
  const reader = createReader({ store, view: inbox, blockMs: settings.stream_block_ms, clock });

  async function readNew(): Promise<void> {
    const entries = await reader.read(await inFlight.room());
    if (entries === "closed") return openInbox(store, { instanceId, group });
    if (entries.length === 0) return;
    await scan.processAll(inbox, { entries, nowMs: time });
  }

  async function retryPending(signal: AbortSignal): Promise<void> {
    const { messages, letters } = await readBacklog(store, instanceId);
    telemetry.inboxPending.set(messages);
    if (letters > 0)
      telemetry.deliveries.inc({ event: "dropped" }, await expireLetters(store, instanceId));
    await scan.pending(inbox, async () => !signal.aborted);
  }

  async function adopt(signal: AbortSignal): Promise<void> {
    const listed = await listInboxes(store);
    // The list may have been lost with a part of a Cluster's memory; an open inbox must be on it.
    if (!listed.some((other) => other.instanceId === instanceId))
      await markInbox(store, { instanceId, mark: randomUUID() });
    await adoptInboxes({ hot: store, log, telemetry, instanceId, group, scan }, listed, signal);
  }

  async function closeOwnInbox(): Promise<void> {
    const own = (await listInboxes(store)).find((listed) => listed.instanceId === instanceId);
    if (own) await retireInbox(store, own);
  }

  /** Pauses after an error also where there is no pause between two steps, so that a store that is down is not flooded. */
  function loop(
    { intervalMs, failure, msg }: { intervalMs: number; failure: string; msg: string },
    step: (signal: AbortSignal) => Promise<void>,
  ): Service {
    let pauseMs = intervalMs;
    const onError = (error: unknown) => {
      pauseMs = Math.max(intervalMs, ERROR_PAUSE_MS);
      log.warn({ event: `inbox.${failure}`, instanceId, error }, msg);
    };
    const attempt = async (signal: AbortSignal) => {
      pauseMs = intervalMs;
      await step(signal);
    };
    return every(() => pauseMs, attempt, { clock, onError });
  }

  const loops = [
    loop(
      { intervalMs: 0, failure: "not-read", msg: "could not read the inbox; will retry" },
      readNew,
    ),
    loop(
      {
        intervalMs: scanIntervalMs,
        failure: "not-scanned",
        msg: "could not retry pending messages; the next scan will",
      },
      retryPending,
    ),
    loop(
      {
        intervalMs: scanIntervalMs,
        failure: "adoption-failed",
        msg: "could not list the inboxes of dead instances; the next scan will retry",
      },
      adopt,
    ),
  ];

  return {
    send,
    sendIf,
    nowMs,
    backlog: (of) => readBacklog(store, of),
    dlq: createDeadLetters({ store, telemetry, route, send, nowMs }),
    start() {
      for (const service of loops) service.start();
    },
    async stop() {
      await Promise.all(loops.map((service) => service.stop()));
      await inFlight.drained();
      reader.close();
      // A peer closes the inbox otherwise, once this instance's presence has expired.
      await closeOwnInbox().catch((error) =>
        log.info(
          { event: "inbox.not-left", instanceId, error },
          "could not close the own inbox; another instance will",
        ),
      );
    },
  };
}
