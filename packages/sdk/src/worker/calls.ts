import {
  type CallParams,
  type CallResponse,
  type CallResult,
  fieldIssues,
  fromErrorInfo,
  NODE_CALLS,
  type NodeMethod,
  type NodeRequest,
  TenureError,
} from "@tenure/protocol";
import type * as z from "zod";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";
import { unsentError } from "../connection/unsent.ts";
import { readable } from "./readable.ts";

export interface CallOptions {
  /** Above it the outcome is unknown: the server may still do what it was asked. */
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
  /** Nobody will answer any more: the connection is gone. */
  abandon(reason: string): void;
}

/** Shorter than the shortest pass that waits for one: the scheduler's, every 5 s. */
export const CALL_TIMEOUT_MS = 4_000;
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
  // Never used twice, so that a late answer to an old call cannot pass for the answer to a new one.
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
      if (!call) return; // It came after its time limit, and was told as unknown then.
      if (error) return call.reject(fromErrorInfo(error));
      const parsed = NODE_CALLS[call.method].result.safeParse(readable(call.method, result));
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
  const words = issues.map(({ path, message }) => `${path}: ${message}`);
  const reason = `the answer to ${method}: ${words.join("; ")}`;
  return new TenureError("INVALID_MESSAGE", { reason, issues });
}
