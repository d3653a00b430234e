import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Violations } from "./operations.ts";

/** A connection of a node that was admitted. */
export interface Registration {
  address: string;
  bootId: string;
  epoch: number;
  startNs: number;
  endNs: number;
}

/** A heartbeat that was answered "your presence is in Postgres". */
export interface Contact {
  address: string;
  epoch: number;
  sentNs: number;
  heardNs: number;
}

export interface NodeUnitState {
  address: string;
  epoch: number;
  online: boolean;
}

/** A LEAVE or a loss that the fleet has written down. */
export interface Departure {
  address: string;
  epoch: number;
}

/** A connection whose end its node has seen: its instance may have seen it too, and counted it as gone. */
export interface Down {
  address: string;
  bootId: string;
  atNs: number;
}

export interface TermsHistory {
  registrations: readonly Registration[];
  downs: readonly Down[];
  contacts: readonly Contact[];
  departures: readonly Departure[];
  presenceTtlMs: number;
}

/** The terms of connections: epochs are unique and rise, and only the newest connection of a node is served. */
export function checkTerms(history: TermsHistory): Findings {
  const violations = createViolations();
  const { registrations, contacts } = history;
  for (const [epoch, same] of groupBy(registrations, ({ epoch }) => String(epoch)))
    if (same.length > 1) violations.add(`epoch ${epoch} was given ${same.length} times`);
  const contactsOf = groupBy(contacts, ({ address }) => address);
  let replaced = 0;
  let taken = 0;
  for (const [address, own] of groupBy(registrations, ({ address }) => address)) {
    const inOrder = [...own].sort((a, b) => a.epoch - b.epoch);
    const heard = contactsOf.get(address) ?? [];
    checkRising(address, inOrder, violations);
    checkSilenced(address, inOrder, heard, violations);
    replaced += Math.max(0, inOrder.length - 1);
    taken += checkTakenOver(address, inOrder, heard, history, violations);
  }
  return {
    checked: registrations.length + contacts.length,
    violations: violations.all,
    reached: { reconnects: replaced, addresses_taken_over: taken },
  };
}

function checkRising(address: string, own: readonly Registration[], violations: Violations): void {
  let latestStart = Number.NEGATIVE_INFINITY;
  for (const { epoch, startNs, endNs } of own) {
    if (endNs < latestStart)
      violations.add(`${address}: epoch ${epoch} is higher than one that was given later`);
    latestStart = Math.max(latestStart, startNs);
  }
}

/** From the moment a newer connection is admitted, nothing renews the presence of an older one. */
function checkSilenced(
  address: string,
  own: readonly Registration[],
  contacts: readonly Contact[],
  violations: Violations,
): void {
  for (const { epoch, sentNs } of contacts) {
    const newer = own.find((other) => other.epoch > epoch && other.endNs < sentNs);
    if (newer)
      violations.add(
        `${address}: epoch ${epoch} was renewed after epoch ${newer.epoch} had been admitted`,
      );
  }
}

/** Another process gets an address only when the former one has left, or has been silent for one TTL. */
function checkTakenOver(
  address: string,
  own: readonly Registration[],
  contacts: readonly Contact[],
  { departures, downs, presenceTtlMs }: TermsHistory,
  violations: Violations,
): number {
  let taken = 0;
  for (const [index, next] of own.entries()) {
    const former = own[index - 1];
    if (!former || former.bootId === next.bootId) continue;
    taken += 1;
    const left = departures.some(
      (gone) => gone.address === address && gone.epoch >= former.epoch && gone.epoch < next.epoch,
    );
    // An instance that was killed between the LEAVE and writing it down has left no departure.
    const down = downs.some(
      ({ bootId, atNs }) => bootId === former.bootId && atNs > former.startNs && atNs <= next.endNs,
    );
    const lastContact = contacts.filter(({ epoch }) => epoch === former.epoch).at(-1);
    const heardNs = lastContact?.sentNs ?? former.startNs;
    const silentMs = (next.endNs - heardNs) / 1e6;
    if (!left && !down && silentMs < presenceTtlMs)
      violations.add(
        `${address}: another process was admitted ${Math.round(silentMs)} ms after a sign of life of the first, which had not left`,
      );
  }
  return taken;
}

/** At rest every node is where it says it is, and everybody agrees. */
export function checkAtRest(
  last: ReadonlyMap<string, number>,
  rows: readonly NodeUnitState[],
  owners: ReadonlyMap<string, number>,
): string[] {
  const violations = createViolations();
  const stored = new Map(rows.map((row) => [row.address, row]));
  for (const [address, epoch] of last) {
    const row = stored.get(address);
    if (!row?.online || row.epoch !== epoch)
      violations.add(
        `${address} is connected under epoch ${epoch}; its row says ${row?.online ? "online" : "offline"}, ${row?.epoch}`,
      );
    const owner = owners.get(address);
    if (owner !== epoch)
      violations.add(`${address} is connected under epoch ${epoch}; its owner key says ${owner}`);
  }
  return violations.all;
}
