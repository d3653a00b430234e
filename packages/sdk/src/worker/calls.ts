import {
  type CallParams,
  type CallResponse,
  type CallResult,
  DeploymentId,
  fieldIssues,
  fromErrorInfo,
  issueText,
  ListedDeployment,
  Member,
  NODE_CALLS,
  type NodeMethod,
  type NodeRequest,
  TenureError,
} from "@tenure/protocol";
import type * as z from "zod";
import type { Cancel, Clock } from "../clock.ts";
import { type SendOutcome, unsentError } from "../connection/link.ts";

export interface CallOptions {
  /** After it the outcome is unknown: the server may still execute the call. */
  timeoutMs?: number;
}

export interface Calls {
  /** Rejects with a `TenureError`: the server's own, or `DEPENDENCY_DOWN` when none came in time. */
  call<M extends NodeMethod>(
    method: M,
    params: CallParams<M>,
    options?: CallOptions,
  ): Promise<CallResult<M>>;
  answered(response: CallResponse): void;
  /** Rejects every open call: the connection is lost. */
  abandon(reason: string): void;
}

/** Shorter than the scheduler's pass, which runs every 5 s and waits for calls. */
const CALL_TIMEOUT_MS = 4_000;
const OPEN_CALLS_MAX = 256;

interface OpenCall {
  method: NodeMethod;
  cancel: Cancel;
  resolve(result: unknown): void;
  reject(error: TenureError): void;
}

/** Requests to the server over the socket, each with an id, a time limit and exactly one outcome. */
export function createCalls({
  clock,
  send,
  timeoutMs: defaultMs = CALL_TIMEOUT_MS,
}: {
  clock: Clock;
  send: (request: NodeRequest) => SendOutcome;
  timeoutMs?: number | undefined;
}): Calls {
  // Ids are never reused, so that a late answer cannot be taken for the answer to a newer call.
  let lastId = 0;
  const open = new Map<number, OpenCall>();

  function take(id: unknown): OpenCall | undefined {
    const call = open.get(id as number);
    open.delete(id as number);
    call?.cancel();
    return call;
  }

  function ask<M extends NodeMethod>(method: M, params: CallParams<M>, timeoutMs: number) {
    return new Promise<unknown>((resolve, reject) => {
      if (open.size >= OPEN_CALLS_MAX)
        throw new TenureError("QUEUE_FULL", { queue: "open calls", limit: OPEN_CALLS_MAX });
      const id = ++lastId;
      const outcome = send({ type: "request", id, method, params } as NodeRequest);
      if (outcome !== "sent") throw unsentError(outcome);
      const cancel = clock.after(timeoutMs, () => {
        take(id)?.reject(unanswered(`no answer to ${method} in ${timeoutMs} ms`));
      });
      open.set(id, { method, cancel, resolve, reject });
    });
  }

  return {
    async call(method, params, { timeoutMs = defaultMs } = {}) {
      return (await ask(method, params, timeoutMs)) as CallResult<typeof method>;
    },
    answered({ id, result, error }) {
      const call = take(id);
      if (!call) return; // It timed out before, and its outcome was reported as unknown.
      if (error) return call.reject(fromErrorInfo(error));
      const parsed = parseResult(call.method, result);
      if (parsed.success) call.resolve(parsed.data);
      else call.reject(unreadable(call.method, parsed.error));
    },
    abandon(reason) {
      for (const id of [...open.keys()]) take(id)?.reject(unanswered(reason));
    },
  };
}

const unanswered = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason });

function unreadable(method: NodeMethod, error: z.ZodError): TenureError {
  const issues = fieldIssues(error);
  const reason = `the answer to ${method}: ${issueText(issues)}`;
  return new TenureError("INVALID_MESSAGE", { reason, issues });
}

/** Item by item only when the whole cannot be parsed: a list may have thousands. */
function parseResult(method: NodeMethod, result: unknown) {
  const schema = NODE_CALLS[method].result;
  const parsed = schema.safeParse(result);
  return parsed.success ? parsed : schema.safeParse(withoutUnreadable(method, result));
}

/**
 * Removes the items of a list that cannot be parsed, so that one bad row of a server does not stop the others. A
 * deployment that was left out is named in `skipped`: it must not look deleted.
 */
function withoutUnreadable(method: NodeMethod, result: unknown): unknown {
  if (method === "deployment.list") return readableDeployments(result);
  if (method === "member.list") return readableMembers(result);
  return result;
}

function readableDeployments(result: unknown): unknown {
  const { items, skipped } = (result ?? {}) as { items?: unknown; skipped?: unknown };
  if (!Array.isArray(items)) return result;
  const named = Array.isArray(skipped) ? [...skipped] : [];
  const read = items.filter((item) => {
    const parsed = ListedDeployment.safeParse(item);
    if (parsed.success) return true;
    const id = DeploymentId.safeParse((item as { id?: unknown } | null)?.id);
    const reason = issueText(fieldIssues(parsed.error));
    if (id.success) named.push({ id: id.data, reason });
    return false;
  });
  return read.length === items.length
    ? result
    : { ...(result as object), items: read, skipped: named };
}

function readableMembers(result: unknown): unknown {
  const { members } = (result ?? {}) as { members?: unknown };
  if (!Array.isArray(members)) return result;
  const read = members.filter((member) => Member.safeParse(member).success);
  return { ...(result as object), members: read };
}
