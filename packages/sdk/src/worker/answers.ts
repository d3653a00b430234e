import {
  CallId,
  type CallParams,
  type CallResponse,
  type CallResult,
  type ServerMethod,
  type ServerRequest,
  TenureError,
  toErrorInfo,
} from "@tenure/protocol";
import { type SendOutcome, unsentError } from "../connection/link.ts";

export interface AnswerContext {
  /** The id of the request, which `log_chunk` names. */
  id: CallId;
  /** Aborts when the connection of the caller is lost. The next connection may reuse the id, so work under it must stop. */
  signal: AbortSignal;
}

/** Handlers of calls from the server. A thrown `TenureError` reaches the caller; any other becomes INTERNAL without details. */
export type ServerCallHandlers = {
  [M in ServerMethod]?: (
    params: CallParams<M>,
    context: AnswerContext,
  ) => CallResult<M> | Promise<CallResult<M>>;
};

export interface Answers {
  asked(request: ServerRequest): void;
  /** Answers a frame that is not a message with an error, if it was meant as a request. */
  rejected(value: unknown, error: TenureError): void;
  connected(): void;
  down(): void;
}

const RUNNING_MAX = 64;

export function createAnswers({
  handlers,
  send,
  problem,
}: {
  handlers: ServerCallHandlers;
  send: (response: CallResponse) => SendOutcome;
  problem: (error: TenureError) => void;
}): Answers {
  let connection = new AbortController();
  let running = 0;

  async function asked(request: ServerRequest): Promise<void> {
    const { signal } = connection;
    running += 1;
    const reply = await perform(request, signal);
    running -= 1;
    // On another connection this id belongs to another request.
    if (!signal.aborted) respond({ type: "response", id: request.id, ...reply });
  }

  async function perform(
    { id, method, params }: ServerRequest,
    signal: AbortSignal,
  ): Promise<Pick<CallResponse, "result" | "error">> {
    try {
      if (running > RUNNING_MAX)
        throw new TenureError("QUEUE_FULL", { queue: "calls to this node", limit: RUNNING_MAX });
      const handler = handlers[method] as
        | ((params: unknown, context: AnswerContext) => unknown)
        | undefined;
      if (!handler) throw new TenureError("NOT_FOUND", { what: "method", id: method });
      return { result: await handler(params, { id, signal }) };
    } catch (error) {
      if (!(error instanceof TenureError))
        problem(new TenureError("INTERNAL", { reason: `${method} failed` }, { cause: error }));
      return { error: toErrorInfo(error) };
    }
  }

  function respond(response: CallResponse): void {
    const outcome = send(response);
    if (outcome === "too_large" && !response.error)
      respond({ type: "response", id: response.id, error: toErrorInfo(unsentError(outcome)) });
  }

  return {
    asked: (request) => void asked(request),
    rejected(value, error) {
      const id = requestId(value);
      if (id !== undefined) respond({ type: "response", id, error: toErrorInfo(error) });
    },
    connected() {
      connection = new AbortController();
    },
    down: () => connection.abort(),
  };
}

function requestId(value: unknown): CallId | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { type, id } = value as { type?: unknown; id?: unknown };
  return type === "request" ? CallId.safeParse(id).data : undefined;
}
