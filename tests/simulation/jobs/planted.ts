import type { MemoryJob } from "../../../packages/server/src/jobs/store/memory-job.ts";
import type { MemorySpace } from "../../../packages/server/src/store/memory-space.ts";
import type { Spoil } from "./store.ts";

/** A protection taken away by changing what one script is asked. */
export const PLANTED: Record<string, Spoil> = {
  "an older attempt's result that counts": only("advance-job", ({ keys, args }, space) => {
    const now = recordOf(space, keys.fsm);
    if (now?.nodeId && Number(args.attemptId) < now.attemptId)
      Object.assign(args, { attemptId: now.attemptId, nodeId: now.nodeId });
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

const recordOf = (space: MemorySpace, key = ""): MemoryJob | undefined =>
  space.record(key) as MemoryJob | undefined;
