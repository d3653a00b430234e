import type {
  CallResult,
  HostEvent,
  Member,
  NodeAddress,
  TenureError,
  ViewState,
} from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { Calls } from "./calls.ts";

/** The node-units of the fleet, as far as this node knows. */
export interface MembersView {
  /** `settling` also while this node itself may have missed something. Then nobody absent is known to be lost. */
  view: ViewState;
  members: ReadonlyMap<NodeAddress, Member>;
}

export type MemberList = CallResult<"member.list">;

/** Asks for the whole list; a long one comes in pages. */
export async function listMembers(call: Calls["call"]): Promise<MemberList> {
  let page = await call("member.list", {});
  const list = { seq: page.seq, view: page.view, members: page.members };
  while (page.next !== undefined) {
    page = await call("member.list", { after: page.next });
    if (page.view === "settling") list.view = "settling";
    list.members = [...list.members, ...page.members];
  }
  return list;
}

export interface Members {
  readonly current: MembersView | undefined;
  heard(event: HostEvent): void;
  /** An event came that cannot be read: the list is asked for, as after a gap. */
  missed(): void;
  down(): void;
}

/** Events that arrive while the list is asked for. Dropping the oldest shows up as a gap, so nothing is lost. */
const PENDING_MAX = 1_000;
const ASK_AGAIN_MS = 1_000;

/** Follows `host_event`s by their numbers. A gap means that some were missed: then the whole list is asked for. */
export function createMembers({
  clock,
  random,
  list,
  changed,
  problem,
}: {
  clock: Clock;
  random: () => number;
  list: () => Promise<MemberList>;
  changed: (view: MembersView) => void;
  problem: (error: TenureError) => void;
}): Members {
  let current: MembersView | undefined;
  /** Number of the last event in `current`; undefined while `current` may have missed some. */
  let seq: number | undefined;
  let pending: HostEvent[] = [];
  let asking: Cancel | undefined;
  /** An INIT whose last page has not arrived. */
  let partial: (MemberList & { next: string }) | undefined;

  function publish(view: MembersView): void {
    current = view;
    changed(view);
  }

  function heard(event: HostEvent): void {
    if (event.event === "INIT") {
      heardInit(event);
    } else if (seq === undefined || !current) {
      hold(event);
    } else if (event.seq === seq + 1) {
      seq = event.seq;
      publish(applyChange(current, event));
    } else if (event.seq > seq) {
      seq = undefined;
      publish({ ...current, view: "settling" });
      hold(event);
    }
  }

  function heardInit({ seq: at, view, members = [], after, next }: HostEvent): void {
    const former = after === undefined ? undefined : partial;
    if (after !== undefined) {
      if (!former) return; // A page before it was missed, and the list is asked for.
      if (after !== former.next) {
        missed();
        return;
      }
    }
    partial = undefined;
    const list = {
      ...{ seq: former?.seq ?? at, view },
      members: [...(former?.members ?? []), ...members],
    };
    if (next === undefined) settle(list);
    else {
      stopAsking();
      partial = { ...list, next };
      unsure();
    }
  }

  /** Until a complete list is there. */
  function unsure(): void {
    seq = undefined;
    if (current && current.view !== "settling") publish({ ...current, view: "settling" });
  }

  function stopAsking(): void {
    asking?.();
    asking = undefined;
  }

  function hold(event: HostEvent): void {
    pending.push(event);
    if (pending.length > PENDING_MAX) pending.shift();
    if (!asking && !partial) ask();
  }

  function ask(): void {
    let asked = true;
    asking = () => {
      asked = false;
    };
    list().then(
      (answer) => asked && settle(answer),
      (error: TenureError) => {
        if (!asked) return;
        problem(error);
        askLater();
      },
    );
  }

  function askLater(): void {
    asking = clock.after(ASK_AGAIN_MS * (0.5 + random()), ask);
  }

  /** A complete list, and then what was told while it was on its way. */
  function settle(answer: MemberList): void {
    stopAsking();
    const later = pending.filter((event) => event.seq > answer.seq);
    const members = new Map(answer.members.map((member) => [member.address, member]));
    if (later[0] && later[0].seq !== answer.seq + 1) {
      // The list is older than the gap it should close. The next one is given time to be newer.
      pending = later;
      publish({ view: "settling", members });
      askLater();
      return;
    }
    pending = [];
    seq = answer.seq;
    publish({ view: answer.view, members });
    for (const event of later) heard(event);
  }

  function missed(): void {
    partial = undefined;
    seq = undefined;
    if (current) publish({ ...current, view: "settling" });
    if (!asking) ask();
  }

  return {
    get current() {
      return current;
    },
    heard,
    missed,
    down() {
      stopAsking();
      partial = undefined;
      pending = [];
      unsure();
    },
  };
}

export function applyChange({ members }: MembersView, event: HostEvent): MembersView {
  const next = new Map(members);
  if (event.new) next.set(event.new.address, event.new);
  else if (event.old && !isNewer(next.get(event.old.address), event.old))
    next.delete(event.old.address);
  return { view: event.view, members: next };
}

/** A node that is back already: the end of its former connection does not take it away. */
const isNewer = (member: Member | undefined, old: Member): boolean =>
  member !== undefined && member.epoch > old.epoch;
