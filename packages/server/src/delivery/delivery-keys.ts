/** One instance's keys share a tag, so that one script may move a message between its inbox and its dead letters. */
export const deliveryKeys = {
  inbox: (prefix: string, instanceId: string) => `${prefix}:streams:{instance:${instanceId}}:inbox`,
  dlq: (prefix: string, instanceId: string) => `${prefix}:streams:{instance:${instanceId}}:dlq`,
  opening: (prefix: string, instanceId: string) =>
    `${prefix}:streams:{instance:${instanceId}}:opening`,
};

/** Inboxes are between instances, and a store in memory has one: `local-delivery.ts` needs no script. */
export function onlyOnRedis(): never {
  throw new Error("a script over an inbox was run on the store in memory");
}
