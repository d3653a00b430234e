import { type DlqEntry, DlqId, ROUTES, serves, TenureError } from "@tenure/protocol";
import type { DeadLetter, DeadLetters, LetterId, Redriven } from "../../delivery/contract.ts";
import type { Scope } from "../../kernel/scope.ts";
import { invalidCursor, readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";

export interface LettersSource extends DeadLetters {
  /** The tenant of the job; `undefined` when the job is not known any more. */
  tenantOf(jobId: string): Promise<string | undefined>;
}

/** Letters read at once for a caller that does not see all. `dlq_maxlen` bounds how many there are. */
const CHUNK = 100;

export function dlqRoutes(letters: LettersSource): Served[] {
  /** A letter belongs to the tenant of its job. Only operators see a letter whose job is unknown. */
  async function isSeen(scope: Scope, { message }: DeadLetter): Promise<boolean> {
    if (scope.operates) return true;
    const tenant = message && (await letters.tenantOf(message.job_id));
    return tenant !== undefined && serves(scope.tenants, tenant);
  }

  async function requireSeen(scope: Scope, id: string): Promise<void> {
    if (scope.operates) return;
    const letter = await letters.read(parseId(id));
    if (!letter || !(await isSeen(scope, letter))) throw noLetter(id);
  }

  /** The next letters that the caller sees. Letters of other tenants are skipped, and no cursor names one. */
  async function readSeen(
    scope: Scope,
    { limit, after, instanceId }: Parameters<DeadLetters["list"]>[0],
  ): Promise<DeadLetter[]> {
    const found: DeadLetter[] = [];
    for (let from = after; ; ) {
      const size = scope.operates ? limit : Math.max(limit, CHUNK);
      const page = await letters.list({ limit: size, instanceId, after: from });
      const seen = await Promise.all(page.map((letter) => isSeen(scope, letter)));
      found.push(...page.filter((_, at) => seen[at]));
      if (found.length >= limit || page.length < size) return found.slice(0, limit);
      from = page.at(-1);
    }
  }

  return [
    serve(ROUTES.listDlq, async ({ scope, query: { limit, cursor, instance_id } }) => {
      const after = cursor === undefined ? undefined : parseCursor(cursor);
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => readSeen(scope, { limit, instanceId: instance_id, after }),
        idOf,
      );
      return { items: rows.map(renderLetter), next_cursor };
    }),
    serve(ROUTES.redriveDlq, async ({ scope, params: { id } }) => {
      await requireSeen(scope, id);
      return { id, instance_id: destinationOf(id, await letters.redrive(parseId(id))) };
    }),
    serve(ROUTES.discardDlq, async ({ scope, params: { id }, reply }) => {
      await requireSeen(scope, id);
      if (!(await letters.discard(parseId(id)))) throw noLetter(id);
      reply.code(204);
      return undefined;
    }),
  ];
}

function renderLetter(letter: DeadLetter): DlqEntry {
  const { instanceId, reason, deliveries, ageMs, movedAtMs, bytes, message } = letter;
  return {
    id: idOf(letter),
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

const idOf = ({ instanceId, streamId }: DeadLetter): string => `${instanceId}:${streamId}`;

function destinationOf(id: string, redriven: Redriven): string {
  switch (redriven.outcome) {
    case "redriven":
      return redriven.instanceId;
    case "absent":
      throw noLetter(id);
    case "full":
      throw new TenureError("INBOX_FULL", { instance_id: redriven.instanceId });
    case "unreadable":
      throw conflict(`no instance can read dead letter ${id}; inspect its bytes, then discard it`);
    case "nowhere":
      throw conflict(
        redriven.because === "wait"
          ? `the target of dead letter ${id} is not connected; retry when it is`
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
  throw invalidCursor();
}

const noLetter = (id: string): TenureError =>
  new TenureError("NOT_FOUND", { what: "dead letter", id });
const conflict = (reason: string): TenureError => new TenureError("CONFLICT", { reason });
