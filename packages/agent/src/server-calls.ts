import type { CallId } from "@tenure/protocol";
import type { NodeConnection, ServerCallHandlers } from "@tenure/sdk";
import type { Executor } from "./executor/contract.ts";

/** What the server may ask of this node: its logs, and a restart. */
export function createServerCalls(
  executor: () => Executor,
  send: NodeConnection["send"],
): ServerCallHandlers {
  const followed = new Map<CallId, AbortController>();

  return {
    "log.read": (selection) => executor().readLog(selection),
    async "log.follow"(selection, { id, signal }) {
      const stopping = new AbortController();
      followed.set(id, stopping);
      const ended = AbortSignal.any([signal, stopping.signal]);
      ended.addEventListener("abort", () => {
        if (followed.get(id) === stopping) followed.delete(id);
      });
      await executor().followLog(selection, {
        signal: ended,
        hear(chunk) {
          // A reader that cannot keep up has lost lines already: better an end than a hole.
          if (send({ type: "log_chunk", id, ...chunk }) !== "sent") stopping.abort();
        },
      });
      return {};
    },
    "log.stop"({ id }) {
      followed.get(id)?.abort();
      return {};
    },
    async "deployment.restart"({ deployment_id }) {
      await executor().restart(deployment_id);
      return {};
    },
  };
}
