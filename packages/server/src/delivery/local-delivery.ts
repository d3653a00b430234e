import assert from "node:assert";
import { every } from "../kernel/service.ts";
import {
  type DeadLetter,
  type DeadLetters,
  type Delivery,
  type DeliveryOptions,
  type Destination,
  LETTERS_KEPT_MS,
  type Meter,
  type Sent,
} from "./contract.ts";
import { revived } from "./dead-letters.ts";
import { type NewDoorbell, readDoorbell, writeDoorbell } from "./doorbell.ts";
import { createInFlight } from "./in-flight.ts";
import { type BuryReason, type InboxEntry, judge } from "./message-policy.ts";

interface Waiting extends InboxEntry {
  sentAtMs: number;
}

/**
 * Delivery of an instance that is alone: the same promises, with an inbox that lasts as long as the process.
 */
export function createLocalDelivery(options: DeliveryOptions & { meter: Meter }): Delivery {
  const { instanceId, settings, clock, log, meter, receive, route } = options;
  const inbox = new Map<string, Waiting>();
  const letters = new Map<string, DeadLetter>();
  const inFlight = createInFlight(settings.stream_count);
  const nowMs = () => Math.floor(clock.wallMs());
  let idCount = 0;
  const nextId = () => `${nowMs()}-${idCount++}`;
  let reading = false;

  async function send(to: string, message: NewDoorbell): Promise<Sent> {
    assert(to === instanceId, `without Redis there is no instance ${to} to send to`);
    const text = writeDoorbell(message);
    if (inbox.size >= settings.stream_maxlen) {
      meter.count("refused");
      return { outcome: "full", length: inbox.size };
    }
    const id = nextId();
    inbox.set(id, { id, text, deliveries: 0, sentAtMs: nowMs() });
    meter.count("sent");
    if (reading) setImmediate(() => void look(id));
    return { outcome: "sent", id };
  }

  async function look(id: string): Promise<void> {
    await inFlight.room();
    const entry = inbox.get(id);
    if (entry && reading && !inFlight.has(id)) inFlight.run(id, () => settle(entry));
  }

  async function settle(entry: Waiting): Promise<void> {
    const limits = { nowMs: nowMs(), deliveriesMax: settings.dlq_max_deliveries };
    const verdict = judge(entry, limits);
    if (verdict.outcome === "bury") return bury(entry, verdict.reason);
    entry.deliveries += 1;
    const received = await receive(verdict.message).catch((error: unknown) => {
      log.warn({ event: "message.not-settled", id: entry.id, error }, "will be tried again");
      return "retry" as const;
    });
    if (received === "retry" || received === "elsewhere") return meter.count("left");
    inbox.delete(entry.id);
    meter.count(received);
  }

  function bury({ id, text, deliveries, sentAtMs }: Waiting, reason: BuryReason): void {
    inbox.delete(id);
    meter.bury(reason);
    if (!settings.dlq_enabled) return;
    const streamId = nextId();
    const times = { movedAtMs: nowMs(), ageMs: nowMs() - sentAtMs };
    const bytes = Buffer.from(text);
    const message = readDoorbell(text);
    letters.set(streamId, { instanceId, streamId, reason, deliveries, ...times, bytes, message });
    const [oldest] = letters.keys();
    if (letters.size <= settings.dlq_maxlen || oldest === undefined) return;
    letters.delete(oldest);
    meter.count("dropped");
  }

  function expireLetters(): void {
    for (const [streamId, { movedAtMs }] of letters) {
      if (movedAtMs > nowMs() - LETTERS_KEPT_MS) break;
      letters.delete(streamId);
      meter.count("dropped");
    }
  }

  const dlq: DeadLetters = {
    async list({ instanceId: of = instanceId, after, limit }) {
      const behind = [...letters.values()].filter(
        ({ streamId }) => !after || countOf(streamId) > countOf(after.streamId),
      );
      return of === instanceId ? behind.slice(0, limit) : [];
    },
    read: async ({ instanceId: of, streamId }) =>
      of === instanceId ? letters.get(streamId) : undefined,
    async redrive({ instanceId: of, streamId }, to) {
      const letter = of === instanceId ? letters.get(streamId) : undefined;
      if (!letter) return { outcome: "absent" };
      if (!letter.message) return { outcome: "unreadable" };
      const destination: Destination = to === undefined ? await route(letter.message) : { to };
      if (destination === "wait" || destination === "gone")
        return { outcome: "nowhere", because: destination };
      const sent = await send(instanceId, revived(letter.message, nowMs()));
      if (sent.outcome === "full") return { outcome: "full", instanceId };
      letters.delete(streamId);
      meter.count("redriven");
      return { outcome: "redriven", instanceId };
    },
    async discard({ instanceId: of, streamId }) {
      const discarded = of === instanceId && letters.delete(streamId);
      if (discarded) meter.count("discarded");
      return discarded;
    },
  };

  const scan = every(
    settings.dlq_scan_interval_ms,
    async () => {
      meter.pending(inbox.size);
      expireLetters();
      for (const id of [...inbox.keys()]) await look(id);
    },
    {
      clock,
      onError: (error) => log.warn({ event: "inbox.not-scanned", error }, "will try again"),
    },
  );

  return {
    send,
    dlq,
    nowMs: async () => nowMs(),
    pending: async () => inbox.size,
    backlog: async (of) =>
      of === instanceId
        ? { messages: inbox.size, letters: letters.size }
        : { messages: 0, letters: 0 },
    start() {
      reading = true;
      scan.start();
    },
    async stop() {
      reading = false;
      await scan.stop();
      await inFlight.drained();
    },
  };
}

/** Letters are numbered as they come; the time before the number is for people. */
const countOf = (streamId: string): number => Number(streamId.split("-")[1]);
