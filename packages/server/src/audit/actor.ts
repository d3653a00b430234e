import { Actor } from "@tenure/protocol";
import type { Db } from "../store/db.ts";

/** Carries the actor of a write that one instance forwards to another. Only peers may send it. */
export const ACTOR_HEADER = "x-tenure-actor";

/** One audited request, as the domain sees it. */
export interface Act {
  readonly actor: Actor;
  /** Writes the audit entry in the transaction of the write itself, so that both are committed or neither. */
  record(tx: Db, subject: string): Promise<void>;
}

/** The actor as part of an event's details. */
export const actorDetails = (act: Act | undefined): { actor?: Actor } =>
  act ? { actor: act.actor } : {};

/** Runs a write and its audit entry in one transaction; a write without an actor leaves no entry. */
export async function recorded<T>(
  db: Db,
  act: Act | undefined,
  {
    write,
    subjectOf,
  }: { write: (tx: Db) => Promise<T>; subjectOf: (done: T) => string | undefined },
): Promise<T> {
  if (!act) return write(db);
  return db.transaction(async (tx) => {
    const done = await write(tx);
    const subject = subjectOf(done);
    if (subject !== undefined) await act.record(tx, subject);
    return done;
  });
}

export const actorHeader = (actor: Actor | undefined): Record<string, string> =>
  actor ? { [ACTOR_HEADER]: encodeURIComponent(JSON.stringify(actor)) } : {};

/** `undefined` for a header that no instance wrote. */
export function readActorHeader(header: string | string[] | undefined): Actor | undefined {
  if (typeof header !== "string" || header.length > HEADER_LENGTH_MAX) return undefined;
  try {
    return Actor.safeParse(JSON.parse(decodeURIComponent(header))).data;
  } catch {
    return undefined;
  }
}

const HEADER_LENGTH_MAX = 2_048;
