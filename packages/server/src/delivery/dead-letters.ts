import type { RedisStore } from "../store/redis.ts";
import type {
  DeadLetter,
  DeadLetters,
  Delivery,
  DeliveryOptions,
  Destination,
  Meter,
} from "./contract.ts";
import type { Doorbell } from "./doorbell.ts";
import { listInstances } from "./inbox-registry-store.ts";
import { discardLetter, readLetter, readLetters } from "./letter-store.ts";

/** How long a letter that was sent again has until it is one again. */
export const REDRIVE_TTL_MS = 60_000;

export interface DeadLettersOptions {
  store: RedisStore;
  meter: Meter;
  route: DeliveryOptions["route"];
  send: Delivery["send"];
  nowMs: () => Promise<number>;
}

/** The dead letters of every instance, alive or gone. */
export function createDeadLetters({
  store,
  meter,
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
      // Last: a crash before it leaves the letter, to be sent twice or discarded, but never lost.
      await discardLetter(store, id);
      meter.count("redriven");
      return { outcome: "redriven", instanceId };
    },
    async discard(id) {
      const discarded = await discardLetter(store, id);
      if (discarded) meter.count("discarded");
      return discarded;
    },
  };

  async function instances(): Promise<string[]> {
    return (await listInstances(store)).map(({ instanceId }) => instanceId);
  }
}

/** As if it were sent now. */
export const revived = (message: Doorbell, nowMs: number): Doorbell => ({
  ...message,
  hops: 0,
  deadline_ms: nowMs + REDRIVE_TTL_MS,
});
