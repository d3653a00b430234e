import type { MemorySpace } from "../../../packages/server/src/store/memory-space.ts";
import type { Spoil } from "./store.ts";

/** A protection taken away by changing what one script is asked. */
export const PLANTED: Record<string, Spoil> = {
  "an older attempt's result that counts": only("advance-job", ({ keys, args }, space) => {
    const now = recordOf(space, keys.fsm);
    if (now?.nodeId && Number(args.attempt_id) < now.attemptId)
      Object.assign(args, { attempt_id: now.attemptId, node_id: now.nodeId });
  }),
  "a request that is bound anew each time": only("bind-request", ({ keys }, space) => {
    space.delete(keys.binding ?? "");
  }),
  "slots without a limit": only("reserve-slots", ({ args }) => {
    args.capacity = 1_000;
  }),
  "slots that nobody frees": ({ name, args }) => {
    if (name === "free-slots") args.slots = [];
    if (name === "reserve-slots" || name === "renew-slots") args.ttl_ms = 1e9;
  },
  "an index that nobody takes from": only("take-due", ({ args }) => {
    args.count = 0;
  }),
};

function only(script: string, spoil: Spoil): Spoil {
  return (call, space) => {
    if (call.name === script) spoil(call, space);
  };
}

function recordOf(space: MemorySpace, key = ""): { attemptId: number; nodeId: string } | undefined {
  const at = space.has(key) ? space.hash(key).get("at")?.split(" ") : undefined;
  return at && { attemptId: Number(at[0]), nodeId: at[4] === "-" ? "" : (at[4] ?? "") };
}
