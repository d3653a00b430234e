import type { RedisStore } from "../store/redis.ts";
import type { DeliveryMetrics } from "../telemetry.ts";
import type {
  DeadLetter,
  DeadLetters,
  Delivery,
  DeliveryOptions,
  Destination,
} from "./contract.ts";
import type { Doorbell } from "./doorbell.ts";
import { listInboxes } from "./inbox-registry-store.ts";
import { discardLetter, readLetter, readLetters } from "./letter-store.ts";

/** The new deadline of a redriven message. */
const REDRIVE_TTL_MS = 60_000;

export interface DeadLettersOptions {
  store: RedisStore;
  telemetry: DeliveryMetrics;
  route: DeliveryOptions["route"];
  send: Delivery["send"];
  nowMs: () => Promise<number>;
}

/** The dead letters of every instance, alive or gone. */
export function createDeadLetters({
  store,
  telemetry,
  route,
  send,
  nowMs,
}: DeadLettersOptions): DeadLetters {
  return {
    async list({ instanceId, after, limit }) {
      const found: DeadLetter[] = [];
      for (const id of instanceId === undefined ? await instances() : [instanceId]) {
        if (after && id < after.instanceId) continue;
        const behind = id === after?.instanceId ? after.streamId : undefined;
        const page = { after: behind, limit: limit - found.length };
        found.push(...(await readLetters(store, id, page)));
        if (found.length >= limit) break;
      }
      return found;
    },
    read: (id) => readLetter(store, id),
    async redrive(id, to) {
      const letter = await readLetter(store, id);
      if (!letter) return { outcome: "absent" };
      const { message } = letter;
      if (!message) return { outcome: "unreadable" };
      const destination: Destination = to === undefined ? await route(message) : { to };
      if (destination === "wait" || destination === "gone")
        return { outcome: "nowhere", because: destination };
      const instanceId = destination.to;
      const sent = await send(instanceId, revived(message, await nowMs()));
      if (sent.outcome === "full") return { outcome: "full", instanceId };
      // Last: after a crash before it the letter is still there, to be redriven again or discarded, but never lost.
      await discardLetter(store, id);
      telemetry.deliveries.inc({ event: "redriven" });
      return { outcome: "redriven", instanceId };
    },
    async discard(id) {
      const discarded = await discardLetter(store, id);
      if (discarded) telemetry.deliveries.inc({ event: "discarded" });
      return discarded;
    },
  };

  async function instances(): Promise<string[]> {
    return (await listInboxes(store)).map(({ instanceId }) => instanceId);
  }
}

/** The message as if it were sent now. */
const revived = (message: Doorbell, nowMs: number): Doorbell => ({
  ...message,
  hops: 0,
  deadline_ms: nowMs + REDRIVE_TTL_MS,
});
