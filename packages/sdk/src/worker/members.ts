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

/** The node-units of the fleet, as this node knows them. */
export interface MembersView {
  /** `settling` also while this node may have missed an event. An absent member is then not known to be lost. */
  view: ViewState;
  /** As they are when this is first read; later changes are in later views. */
  readonly members: ReadonlyMap<NodeAddress, Member>;
}

export type MemberList = CallResult<"member.list">;

/** Requests the whole list, page by page. */
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

/** Events that are buffered during a request. Dropping the oldest shows up as a gap, so none is lost unnoticed. */
const BUFFERED_MAX = 1_000;
const RETRY_MS = 1_000;

interface MembersOptions {
  clock: Clock;
  random: () => number;
  list: () => Promise<MemberList>;
  changed: (view: MembersView) => void;
  problem: (error: TenureError) => void;
  map?: MemberMap | undefined;
}

/** The members by address. The map that was read last does not change any more. */
export interface MemberMap {
  read(): ReadonlyMap<NodeAddress, Member>;
  /** `seq`: the number of the last change in the list. */
  replace(members: readonly Member[], seq: number): void;
  apply(event: HostEvent): void;
}

/**
 * Follows `host_event`s by their sequence numbers. After a gap it requests the whole list.
 *
 * - `#seq` is the number of the last event in `#current`; undefined while `#current` may be incomplete.
 * - While it is undefined, events are buffered, and a request or the next page of an INIT is under way.
 * - `#request` cancels the request, or the pause before its retry.
 */
export class Members {
  readonly #options: MembersOptions;
  #current: MembersView | undefined;
  readonly #map: MemberMap;
  #seq: number | undefined;
  #buffered: HostEvent[] = [];
  #request: Cancel | undefined;
  /** An INIT whose last page has not arrived. */
  #partial: (MemberList & { next: string }) | undefined;

  constructor(options: MembersOptions) {
    this.#options = options;
    this.#map = options.map ?? new OwnMemberMap();
  }

  get current(): MembersView | undefined {
    return this.#current;
  }

  receive(event: HostEvent): void {
    if (event.event === "INIT") {
      this.#receiveInit(event);
    } else if (this.#seq === undefined || !this.#current) {
      this.#buffer(event);
    } else if (isNext(event, this.#seq)) {
      this.#seq = event.seq;
      this.#map.apply(event);
      this.#publish(event.view);
    } else if (event.seq > this.#seq) {
      this.#seq = undefined;
      this.#publish("settling");
      this.#buffer(event);
    }
  }

  /** Requests the list: an event could not be parsed, or a page is missing. */
  refresh(): void {
    this.#partial = undefined;
    this.#seq = undefined;
    if (this.#current) this.#publish("settling");
    if (!this.#request) this.#requestList();
  }

  down(): void {
    this.#cancelRequest();
    this.#partial = undefined;
    this.#buffered = [];
    this.#markIncomplete();
  }

  #publish(view: ViewState): void {
    const map = this.#map;
    let members: MembersView["members"] | undefined;
    this.#current = {
      view,
      get members() {
        members ??= map.read();
        return members;
      },
    };
    this.#options.changed(this.#current);
  }

  #receiveInit({ seq: at, view, members = [], after, next }: HostEvent): void {
    const former = after === undefined ? undefined : this.#partial;
    if (after !== undefined) {
      if (!former) return; // An earlier page is missing, and the list is requested already.
      if (after !== former.next) {
        this.refresh();
        return;
      }
    }
    this.#partial = undefined;
    const list = {
      ...{ seq: former?.seq ?? at, view },
      members: [...(former?.members ?? []), ...members],
    };
    if (next === undefined) this.#replace(list);
    else {
      this.#cancelRequest();
      this.#partial = { ...list, next };
      this.#markIncomplete();
    }
  }

  /** Until a complete list is there. */
  #markIncomplete(): void {
    this.#seq = undefined;
    if (this.#current && this.#current.view !== "settling") this.#publish("settling");
  }

  #cancelRequest(): void {
    this.#request?.();
    this.#request = undefined;
  }

  #buffer(event: HostEvent): void {
    this.#buffered.push(event);
    if (this.#buffered.length > BUFFERED_MAX) this.#buffered.shift();
    if (!this.#request && !this.#partial) this.#requestList();
  }

  #requestList(): void {
    let isWanted = true;
    this.#request = () => {
      isWanted = false;
    };
    this.#options.list().then(
      (list) => isWanted && this.#replace(list),
      (error: TenureError) => {
        if (!isWanted) return;
        this.#options.problem(error);
        this.#retryLater();
      },
    );
  }

  #retryLater(): void {
    const { clock, random } = this.#options;
    this.#request = clock.after(RETRY_MS * (0.5 + random()), () => this.#requestList());
  }

  /** Takes a complete list, and then the events that arrived meanwhile. */
  #replace(list: MemberList): void {
    this.#cancelRequest();
    const later = this.#buffered.filter((event) => event.seq > list.seq || isNext(event, list.seq));
    this.#map.replace(list.members, list.seq);
    if (later[0] && !isNext(later[0], list.seq)) {
      // The list is older than the gap it should close: the next request goes out after a pause.
      this.#buffered = later;
      this.#publish("settling");
      this.#retryLater();
      return;
    }
    this.#buffered = [];
    this.#seq = list.seq;
    this.#publish(list.view);
    for (const event of later) this.receive(event);
  }
}

/** Whether nothing is missing between this number and the event. A batch may repeat changes, or have only a new view. */
const isNext = ({ seq, after_seq }: HostEvent, at: number): boolean =>
  after_seq === undefined ? seq === at + 1 : after_seq <= at && seq >= at;

/**
 * The members of one connection. The map is copied before a change only if it was read since the last one: while thousands of nodes join,
 * each of them gets a hundred events and reads the members now and then.
 */
class OwnMemberMap implements MemberMap {
  #members: Map<NodeAddress, Member> = new Map();
  #wasRead = false;

  read(): ReadonlyMap<NodeAddress, Member> {
    this.#wasRead = true;
    return this.#members;
  }

  replace(members: readonly Member[]): void {
    this.#members = new Map(members.map((member) => [member.address, member]));
    this.#wasRead = false;
  }

  apply({ changed = [], left = [], new: joined, old }: HostEvent): void {
    // Only the view has changed.
    if (changed.length + left.length === 0 && !joined && !old) return;
    if (this.#wasRead) this.#copy();
    for (const member of changed) this.#members.set(member.address, member);
    for (const each of left) this.#remove(each);
    if (joined) this.#members.set(joined.address, joined);
    else if (old) this.#remove(old);
  }

  #copy(): void {
    this.#members = new Map(this.#members);
    this.#wasRead = false;
  }

  #remove(old: { address: NodeAddress; epoch: number }): void {
    if (!isNewer(this.#members.get(old.address), old)) this.#members.delete(old.address);
  }
}

/** The node has reconnected already: the end of its former connection does not remove it. */
const isNewer = (member: Member | undefined, old: { epoch: number }): boolean =>
  member !== undefined && member.epoch > old.epoch;
