import { type DlqEntry, DlqId, ROUTES, TenureError } from "@tenure/protocol";
import type { DeadLetter, DeadLetters, LetterId, Redriven } from "../delivery/contract.ts";
import { type Served, serve } from "./route.ts";

export function dlqRoutes(letters: DeadLetters): Served[] {
  return [
    serve(ROUTES.listDlq, async ({ query: { limit, cursor, instance_id } }) => {
      const after = cursor === undefined ? undefined : parseCursor(cursor);
      // One more than asked for tells whether there is a next page.
      const found = await letters.list({ limit: limit + 1, instanceId: instance_id, after });
      const items = found.slice(0, limit).map(renderLetter);
      return { items, next_cursor: found.length > limit ? items.at(-1)!.id : null };
    }),
    serve(ROUTES.redriveDlq, async ({ params: { id } }) => ({
      id,
      instance_id: destinationOf(id, await letters.redrive(parseId(id))),
    })),
    serve(ROUTES.discardDlq, async ({ params: { id }, reply }) => {
      if (!(await letters.discard(parseId(id)))) throw noLetter(id);
      reply.code(204);
      return undefined;
    }),
  ];
}

function renderLetter(letter: DeadLetter): DlqEntry {
  const { instanceId, streamId, reason, deliveries, ageMs, movedAtMs, bytes, message } = letter;
  return {
    id: `${instanceId}:${streamId}`,
    instance_id: instanceId,
    reason,
    deliveries,
    age_ms: ageMs,
    moved_at: new Date(movedAtMs).toISOString(),
    ...(message && {
      kind: message.kind,
      job_id: message.job_id,
      attempt_id: message.attempt_id,
    }),
    bytes: bytes.toString("base64"),
  };
}

function destinationOf(id: string, redriven: Redriven): string {
  switch (redriven.outcome) {
    case "redriven":
      return redriven.instanceId;
    case "absent":
      throw noLetter(id);
    case "full":
      throw new TenureError("INBOX_FULL", { instance_id: redriven.instanceId });
    case "unreadable":
      throw conflict(`nobody can read dead letter ${id}; look at its bytes, then discard it`);
    case "nowhere":
      throw conflict(
        redriven.because === "wait"
          ? `nobody owns the target of dead letter ${id} now; try again when it has connected`
          : `dead letter ${id} has nothing left to do; discard it`,
      );
  }
}

/** An instance id may contain a colon, a stream id never does. */
function parseId(id: string): LetterId {
  const colon = id.lastIndexOf(":");
  return { instanceId: id.slice(0, colon), streamId: id.slice(colon + 1) };
}

function parseCursor(cursor: string): LetterId {
  if (DlqId.safeParse(cursor).success) return parseId(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}

const noLetter = (id: string): TenureError =>
  new TenureError("NOT_FOUND", { what: "dead letter", id });
const conflict = (reason: string): TenureError => new TenureError("CONFLICT", { reason });
