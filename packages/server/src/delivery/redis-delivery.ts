import { randomUUID } from "node:crypto";
import { every, type Service } from "../kernel/service.ts";
import type { RedisStore } from "../store/redis.ts";
import { adoptInboxes } from "./adoption.ts";
import type { Delivery, DeliveryOptions, Meter } from "./contract.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createInFlight } from "./in-flight.ts";
import { openInbox, retire } from "./inbox-lifecycle.ts";
import { listInstances, markInstance } from "./inbox-registry-store.ts";
import { createRounds } from "./inbox-scan.ts";
import { type InboxView, readBacklog, readTime } from "./inbox-store.ts";
import { expireLetters } from "./letter-store.ts";
import { createReader } from "./reader.ts";
import { createSender } from "./sender.ts";

const ERROR_PAUSE_MS = 200;

/** Delivery between instances over Redis Streams, single or Cluster. */
export function createRedisDelivery(
  options: DeliveryOptions & { store: RedisStore; meter: Meter },
): Delivery {
  const { store, instanceId, settings, clock, log, meter, receive, route } = options;
  const { stream_group: group, dlq_scan_interval_ms: scanIntervalMs } = settings;
  const inbox: InboxView = { instanceId, group, consumer: instanceId };
  const nowMs = () => readTime(store, instanceId);

  const send = createSender({ hot: store, settings, meter });
  const inFlight = createInFlight(settings.stream_count);
  const context = { hot: store, instanceId, settings, log, meter, receive, route, send };
  const rounds = createRounds({ context, inFlight, idleMinMs: scanIntervalMs });
  const reader = createReader({ store, view: inbox, blockMs: settings.stream_block_ms, clock });

  async function readOn(): Promise<void> {
    const entries = await reader.read(await inFlight.room());
    if (entries === "closed") return openInbox(store, { instanceId, group });
    if (entries.length === 0) return;
    // In flight at once, before the time is known: else a scan finds them pending and takes them too.
    const time = nowMs();
    time.catch(() => {}); // each of them hears of it; with none left to hear, it is no news
    await rounds.settleAll(inbox, { entries, nowMs: time });
  }

  async function retryPending(signal: AbortSignal): Promise<void> {
    const { messages, letters } = await readBacklog(store, instanceId);
    meter.pending(messages);
    if (letters > 0) meter.count("dropped", await expireLetters(store, instanceId));
    await rounds.pending(inbox, async () => !signal.aborted);
  }

  async function adopt(signal: AbortSignal): Promise<void> {
    const listed = await listInstances(store);
    // The list may have been lost with a part of a cluster's memory; an open inbox must be on it.
    if (!listed.some((other) => other.instanceId === instanceId))
      await markInstance(store, { instanceId, mark: randomUUID() });
    await adoptInboxes({ hot: store, log, meter, instanceId, group, rounds }, listed, signal);
  }

  async function leave(): Promise<void> {
    const own = (await listInstances(store)).find((listed) => listed.instanceId === instanceId);
    if (own) await retire(store, own);
  }

  /** After an error a pause, also where there is none between two steps: a store that is down is left alone. */
  function loop(
    { intervalMs, failure }: { intervalMs: number; failure: string },
    step: (signal: AbortSignal) => Promise<void>,
  ): Service {
    let pauseMs = intervalMs;
    const onError = (error: unknown) => {
      pauseMs = Math.max(intervalMs, ERROR_PAUSE_MS);
      log.warn({ event: `inbox.${failure}`, instanceId, error }, "will try again");
    };
    const attempt = async (signal: AbortSignal) => {
      pauseMs = intervalMs;
      await step(signal);
    };
    return every(() => pauseMs, attempt, { clock, onError });
  }

  const loops = [
    loop({ intervalMs: 0, failure: "not-read" }, readOn),
    loop({ intervalMs: scanIntervalMs, failure: "not-scanned" }, retryPending),
    loop({ intervalMs: scanIntervalMs, failure: "adoption-failed" }, adopt),
  ];

  return {
    send,
    nowMs,
    pending: async () => (await readBacklog(store, instanceId)).messages,
    backlog: (of) => readBacklog(store, of),
    dlq: createDeadLetters({ store, meter, route, send, nowMs }),
    start() {
      for (const service of loops) service.start();
    },
    async stop() {
      await Promise.all(loops.map((service) => service.stop()));
      await inFlight.drained();
      reader.close();
      // Others would do it too, once this instance's presence is gone.
      await leave().catch((error) =>
        log.info({ event: "inbox.not-left", instanceId, error }, "another instance will close it"),
      );
    },
  };
}
