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

export interface NodeRpc extends Pick<NodeLink, "call" | "follow"> {
  /** A `response` arrived. One whose call has timed out is dropped. */
  onResponse(response: CallResponse): void;
  onLog(chunk: LogLines & { id: CallId }): void;
  /** The socket is closed: rejects the open calls. */
  end(): void;
}

const RESPONSE_LIMIT_MS = 10_000;
const OPEN_CALLS_MAX = 1_000;

/** Remote calls from the server to one node, over its socket. */
export function createNodeRpc(
  send: (message: ServerToNode) => void,
  limitMs: number = RESPONSE_LIMIT_MS,
): NodeRpc {
  const waiting = new Map<CallId, (response: CallResponse | undefined) => void>();
  const followers = new Map<CallId, LogFollower>();
  let lastId = 0;
  let open = true;

  async function request<M extends ServerMethod>(
    id: number,
    method: M,
    params: CallParams<M>,
  ): Promise<CallResult<M>> {
    if (!open) throw nodeDown("it is not connected");
    if (waiting.size >= OPEN_CALLS_MAX) throw nodeDown(`${OPEN_CALLS_MAX} calls to it are open`);
    const response = await new Promise<CallResponse | undefined>((resolve) => {
      const timer = setTimeout(() => resolve(undefined), limitMs);
      waiting.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      send({ type: "request", id, method, params } as ServerToNode);
    }).finally(() => waiting.delete(id));
    if (!response) throw nodeDown(open ? `no answer within ${limitMs} ms` : "it disconnected");
    if (response.error) throw fromErrorInfo(response.error);
    const parsed = SERVER_CALLS[method].result.safeParse(response.result ?? {});
    if (!parsed.success) throw nodeDown(`it sent an invalid response to ${method}`);
    return parsed.data as CallResult<M>;
  }

  return {
    call: (method, params) => request(++lastId, method, params),
    async follow(selection: LogSelection, follower) {
      const id = ++lastId;
      // Before the response: lines may follow it at once.
      followers.set(id, follower);
      try {
        await request(id, "log.follow", selection);
      } catch (error) {
        followers.delete(id);
        throw error;
      }
      return () => {
        if (followers.delete(id)) request(++lastId, "log.stop", { id }).catch(() => {});
      };
    },
    onResponse: (response) => waiting.get(response.id)?.(response),
    onLog: ({ id, lines, next }) => followers.get(id)?.onLines({ lines, next }),
    end() {
      open = false;
      for (const resolve of [...waiting.values()]) resolve(undefined);
      for (const follower of followers.values()) follower.ended();
      followers.clear();
    },
  };
}

const nodeDown = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the node", reason });
