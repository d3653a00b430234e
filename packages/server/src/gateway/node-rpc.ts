import {
  type CallId,
  type CallParams,
  type CallResponse,
  type CallResult,
  fromErrorInfo,
  type LogLines,
  type LogSelection,
  SERVER_CALLS,
  type ServerMethod,
  type ServerToNode,
  TenureError,
} from "@tenure/protocol";
import type { LogFollower, NodeLink } from "../membership/node-connection.ts";

export interface NodeLine extends Pick<NodeLink, "call" | "follow"> {
  /** A `response` came. One that nobody waits for any more is dropped. */
  answered(response: CallResponse): void;
  heard(chunk: LogLines & { id: CallId }): void;
  /** The socket is gone: whoever waits is told. */
  end(): void;
}

const ANSWER_LIMIT_MS = 10_000;
const WAITING_MAX = 1_000;

/** Calls from the server to one node, over its socket. */
export function createNodeLine(
  send: (message: ServerToNode) => void,
  limitMs: number = ANSWER_LIMIT_MS,
): NodeLine {
  const waiting = new Map<CallId, (response: CallResponse | undefined) => void>();
  const followers = new Map<CallId, LogFollower>();
  let lastId = 0;
  let open = true;

  async function ask<M extends ServerMethod>(
    id: number,
    method: M,
    params: CallParams<M>,
  ): Promise<CallResult<M>> {
    if (!open || waiting.size >= WAITING_MAX) throw silent("it is not connected any more");
    const response = await new Promise<CallResponse | undefined>((resolve) => {
      const timer = setTimeout(() => resolve(undefined), limitMs);
      waiting.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      send({ type: "request", id, method, params } as ServerToNode);
    }).finally(() => waiting.delete(id));
    if (!response) throw silent(open ? `no answer within ${limitMs} ms` : "it disconnected");
    if (response.error) throw fromErrorInfo(response.error);
    const parsed = SERVER_CALLS[method].result.safeParse(response.result ?? {});
    if (!parsed.success) throw silent("its answer makes no sense");
    return parsed.data as CallResult<M>;
  }

  return {
    call: (method, params) => ask(++lastId, method, params),
    async follow(selection: LogSelection, follower) {
      const id = ++lastId;
      // Before the answer: lines may come right behind it.
      followers.set(id, follower);
      try {
        await ask(id, "log.follow", selection);
      } catch (error) {
        followers.delete(id);
        throw error;
      }
      return () => {
        if (followers.delete(id)) ask(++lastId, "log.stop", { id }).catch(() => {});
      };
    },
    answered: (response) => waiting.get(response.id)?.(response),
    heard: ({ id, lines, next }) => followers.get(id)?.onLines({ lines, next }),
    end() {
      open = false;
      for (const resolve of [...waiting.values()]) resolve(undefined);
      for (const follower of followers.values()) follower.ended();
      followers.clear();
    },
  };
}

const silent = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the node", reason });
