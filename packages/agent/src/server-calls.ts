import type { CallId } from "@tenure/protocol";
import type { NodeConnection, ServerCallHandlers } from "@tenure/sdk";
import type { Executor } from "./executor/contract.ts";

/** Handles the calls that the server makes to this node: logs and restarts. */
export function createServerCalls(
  executor: () => Executor,
  send: NodeConnection["send"],
): ServerCallHandlers {
  const followers = new Map<CallId, AbortController>();

  return {
    "log.read": (selection) => executor().readLog(selection),
    async "log.follow"(selection, { id, signal }) {
      const stopped = new AbortController();
      followers.set(id, stopped);
      const ended = AbortSignal.any([signal, stopped.signal]);
      ended.addEventListener("abort", () => {
        if (followers.get(id) === stopped) followers.delete(id);
      });
      await executor().followLog(selection, {
        signal: ended,
        onLines(chunk) {
          // A caller that is too slow gets an end instead of a gap.
          if (send({ type: "log_chunk", id, ...chunk }) !== "sent") stopped.abort();
        },
      });
      return {};
    },
    "log.stop"({ id }) {
      followers.get(id)?.abort();
      return {};
    },
    async "deployment.restart"({ deployment_id }) {
      await executor().restart(deployment_id);
      return {};
    },
  };
}
