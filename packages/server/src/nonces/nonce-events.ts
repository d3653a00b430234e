import type { Actor } from "@tenure/protocol";
import type { Log } from "../kernel/log.ts";
import type { Db } from "../store/db.ts";
import { appendEvent, type NewEvent } from "../store/event-store.ts";

export interface LeaseEvents {
  takenOver(signer: string, formerOwner: string | undefined): void;
  fenced(signer: string, fencingToken: number, writes: number): void;
}

export interface NonceEvents extends LeaseEvents {
  moved(signer: string, from: string, to: string, actor?: Actor): void;
}

/** Stores the events of signers. An event that cannot be stored is logged; the write that it reports is done anyway. */
export function createNonceEvents({
  instanceId,
  db,
  log,
}: {
  instanceId: string;
  db: Db;
  log: Log;
}): NonceEvents {
  function warn(event: NewEvent): void {
    log.warn({ ...event.details, event: event.event, signer: event.subject }, event.message);
    store(event);
  }

  function store(event: NewEvent): void {
    appendEvent(db, event).catch((error: unknown) =>
      log.warn(
        { event: "event.lost", lost: event.event, error },
        "could not store an event; it is lost",
      ),
    );
  }

  return {
    takenOver: (signer, formerOwner) =>
      warn({
        event: "lease.taken-over",
        message: `${instanceId} took over signer ${signer}: the lease of its former owner expired`,
        subject: signer,
        details: { instance_id: instanceId, former_owner: formerOwner },
      }),
    fenced: (signer, fencingToken, writes) =>
      warn({
        event: "write.fenced",
        code: "FENCED",
        message: `a write of ${instanceId} to signer ${signer} was refused: its lease expired or was taken over`,
        subject: signer,
        details: { instance_id: instanceId, fencing_token: fencingToken, writes },
      }),
    moved(signer, from, to, actor) {
      log.info({ event: "signer.moved", signer, from, to }, "moved a signer to another tenant");
      store({
        event: "signer.moved",
        message: `signer ${signer} was moved from tenant ${from} to ${to}`,
        subject: signer,
        details: { from, to, ...(actor && { actor }) },
      });
    },
  };
}
