import type { CallResult, ViewState } from "@tenure/protocol";
import {
  changesBetween,
  type MemberChange,
  type Members,
  membersOf,
  type Settling,
  viewState,
} from "../../../packages/server/src/membership/members-view.ts";
import type { NodeUnitRow } from "../../../packages/server/src/membership/store/node-unit-store.ts";
import type { Timeline } from "../timeline.ts";
import type { Arbiter } from "./arbiter.ts";
import type { Store } from "./instance.ts";

export interface View {
  look(): Promise<void>;
  current(): CallResult<"member.list">;
}

export interface ViewLook {
  rows: readonly NodeUnitRow[];
  changes: readonly (MemberChange & { seq: number })[];
  view: ViewState;
}

/** An instance's view of the members. When it settles and what changed is decided by the server's own functions. */
export function createView({
  arbiter,
  store,
  timeline,
  presenceTtlMs,
  onLook,
}: {
  arbiter: Arbiter;
  store: Store;
  timeline: Timeline;
  presenceTtlMs: number;
  onLook: (look: ViewLook) => void;
}): View {
  let members: Members = new Map();
  let settling: Settling | undefined;
  let view: ViewState = "settling";
  let seq = 0;
  let lastLookMs: number | undefined;
  let looking: Promise<void> = Promise.resolve();

  async function settle(): Promise<void> {
    const nowMs = timeline.monotonicMs();
    const untilMs = nowMs + presenceTtlMs;
    if (lastLookMs === undefined) {
      const expected = await store(() => arbiter.nodes.expected(presenceTtlMs));
      settling = { expected: new Set(expected), untilMs };
    } else if (nowMs - lastLookMs > presenceTtlMs / 2) {
      settling = { expected: new Set(members.keys()), untilMs };
    }
  }

  async function look(): Promise<void> {
    await settle();
    const rows = await store(() => arbiter.nodes.list());
    const now = membersOf(rows);
    lastLookMs = timeline.monotonicMs();
    const seen = viewState(settling, now, lastLookMs);
    if (seen === "ready") await store(() => arbiter.nodes.judgeBrake(presenceTtlMs));
    const changes = changesBetween(members, now).map((change) => ({ ...change, seq: ++seq }));
    members = now;
    view = seen;
    if (view === "ready") settling = undefined;
    onLook({ rows, changes, view });
  }

  return {
    look() {
      looking = looking.then(look);
      return looking;
    },
    current: () => ({ seq, view, members: [...members.values()] }),
  };
}
