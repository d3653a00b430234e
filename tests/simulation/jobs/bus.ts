import type { Delivery } from "../../../packages/server/src/delivery/contract.ts";
import type { Doorbell } from "../../../packages/server/src/delivery/doorbell.ts";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { Scheduler } from "./scheduler.ts";

export interface Bus {
  send(from: Scheduler, to: string, message: Parameters<Delivery["send"]>[1]): void;
}

const HOPS_MAX = 3;

/**
 * Inboxes between instances, without streams: late, doubled and out of order by chance, tried again until done, and
 * adopted by somebody else when their reader is dead. That none is lost is the promise of delivery, not of jobs.
 */
export function createBus({
  timeline,
  chance,
  schedulers,
  storeNowMs,
}: {
  timeline: Timeline;
  chance: Chance;
  schedulers: () => readonly Scheduler[];
  storeNowMs: () => number;
}): Bus {
  function carry(to: string, message: Doorbell, inMs = chance.between(0.5, 20)): void {
    timeline.after(inMs, () => {
      if (storeNowMs() > message.deadline_ms) return;
      const reader = schedulers().find(({ id, isAlive }) => id === to && isAlive);
      if (reader) void receive(reader, message);
      else timeline.after(chance.between(1_000, 6_000), () => void adopt(message));
    });
  }

  async function receive(reader: Scheduler, message: Doorbell): Promise<void> {
    const received = await reader.jobs.receive(message).catch(() => "retry" as const);
    if (received === "retry") carry(reader.id, message, 1_000);
    if (received === "elsewhere") await route(reader, message);
  }

  async function adopt(message: Doorbell): Promise<void> {
    const heir = schedulers().find(({ isAlive }) => isAlive);
    if (heir) await route(heir, message);
    else timeline.after(1_000, () => void adopt(message));
  }

  async function route(by: Scheduler, message: Doorbell): Promise<void> {
    const where = await by.jobs.route(message).catch(() => "wait" as const);
    if (where === "gone" || message.hops >= HOPS_MAX) return;
    if (where === "wait") timeline.after(1_000, () => void adopt(message));
    else carry(where.to, { ...message, hops: message.hops + 1 });
  }

  return {
    send(_, to, message) {
      const doorbell = { v: 1 as const, hops: 0, ...message } as Doorbell;
      carry(to, doorbell);
      if (chance.isTrue(0.05)) carry(to, doorbell);
    },
  };
}
