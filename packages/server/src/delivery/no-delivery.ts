import type { Clock } from "../kernel/clock.ts";
import type { Delivery } from "./contract.ts";

/** Delivery of an instance without Redis. It has no peers, so there is nothing to send, receive or redrive. */
export const createNoDelivery = (clock: Clock): Delivery => ({
  send: refuse,
  sendIf: (_, instanceId) => refuse(instanceId),
  start() {},
  async stop() {},
  backlog: async () => ({ messages: 0, letters: 0 }),
  nowMs: async () => Math.floor(clock.wallMs()),
  dlq: {
    list: async () => [],
    read: async () => undefined,
    redrive: async () => ({ outcome: "absent" }),
    discard: async () => false,
  },
});

async function refuse(instanceId: string): Promise<never> {
  throw new Error(`cannot send to instance ${instanceId}: without Redis there are no peers`);
}
