/** The keys of an instance share a hash tag, so that one script can move a message from its inbox to its dead letters. */
export const deliveryKeys = {
  inbox: (prefix: string, instanceId: string) => `${prefix}:streams:{instance:${instanceId}}:inbox`,
  dlq: (prefix: string, instanceId: string) => `${prefix}:streams:{instance:${instanceId}}:dlq`,
  opening: (prefix: string, instanceId: string) =>
    `${prefix}:streams:{instance:${instanceId}}:opening`,
};

/** Inboxes are between instances, and a memory store has one instance: `no-delivery.ts` needs no script. */
export function onlyOnRedis(): never {
  throw new Error("a script of an inbox was run on the memory store");
}
