/** What went over the wire between nodes and instances. Heartbeats and pings are not in it: those never change. */
export interface Tally {
  lists: number;
  listRows: number;
  listFree: number;
  listOwners: number;
  /** Lists that were cut. */
  cut: number;
  claims: number;
  conflicts: number;
  releases: number;
  /** `deployments_changed`. */
  tells: number;
  hostEvents: number;
  /** Calls whose answer came after the limit, or never. */
  late: number;
  bytes: number;
}

export const createTally = (): Tally => ({
  ...{
    lists: 0,
    listRows: 0,
    listFree: 0,
    listOwners: 0,
    cut: 0,
    claims: 0,
    conflicts: 0,
    releases: 0,
  },
  ...{ tells: 0, hostEvents: 0, late: 0, bytes: 0 },
});

/** Questions and answers, events and wake-ups. */
export function messagesOf(tally: Tally): number {
  const calls = tally.lists + tally.claims + tally.conflicts + tally.releases;
  return 2 * calls + tally.tells + tally.hostEvents;
}

export function since(before: Tally, after: Tally): Tally {
  const difference = createTally();
  for (const name of Object.keys(difference) as (keyof Tally)[])
    difference[name] = after[name] - before[name];
  return difference;
}
