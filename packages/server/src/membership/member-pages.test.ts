import { type HostEvent, type Member, ServerToNode } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createMemberPages, PAGE_BYTES_MAX, WHOLE_BYTES_MAX } from "./member-pages.ts";

const PAGED = { tenants: ["default"], readsPages: true };
const OF_0_1 = { tenants: ["default"], readsPages: false };

const member = (name: string, labelBytes = 0): Member => ({
  address: name,
  name,
  instance_id: "instance-1",
  epoch: 1,
  claim_policy: "deployment_count",
  labels: labelsOf(labelBytes),
  trusted_package_regexp: "",
  custom_command: false,
  draining: false,
  tags: { node_unit: true, rack: "r7" },
  tenants: ["default"],
  joined_at: "2026-01-31T12:00:00.000Z",
});

function labelsOf(bytes: number): Record<string, string> {
  const values = Array.from({ length: Math.ceil(bytes / 256) }, (_, n) => [
    `l${n}`,
    "x".repeat(250),
  ]);
  return Object.fromEntries(values);
}

/** An address, in the order of the numbers. */
const named = (n: number): string =>
  "N".repeat(30) + [...String(n).padStart(5, "0")].map((digit) => "ABCDEFGHJK"[+digit]).join("");
const fleetOf = (count: number, labelBytes: number): Member[] =>
  Array.from({ length: count }, (_, n) => member(named(n), labelBytes)).reverse();

function view(members: Member[]) {
  const state = { seq: 1, view: "ready" as const, members, rows: [], settlesInMs: 0 };
  return { state, current: () => state };
}

/** A reader that takes one frame at a time. */
function link() {
  const frames: Buffer[] = [];
  let drained: (() => void) | undefined;
  return {
    frames,
    sendText: (frame: Buffer) => frames.push(frame),
    whenDrained: (callback: () => void) => {
      drained = callback;
    },
    /** False when nothing waits for it. */
    drain(): boolean {
      const callback = drained;
      drained = undefined;
      callback?.();
      return callback !== undefined;
    },
  };
}

const read = (frame: Buffer): HostEvent => {
  const message = ServerToNode.parse(JSON.parse(frame.toString()));
  if (message.type !== "host_event") throw new Error(`unexpected ${message.type}`);
  return message;
};
const addresses = (frames: readonly Buffer[]): string[] =>
  frames.flatMap((frame) => (read(frame).members ?? []).map(({ address }) => address));

describe("2,000 members of 16 KiB", () => {
  const members = fleetOf(2_000, 16_000);

  test("are sent in frames below the limit, each when the one before has left", () => {
    const to = link();
    createMemberPages(view(members).current).send(to, PAGED);
    expect(to.frames).toHaveLength(1);
    while (to.drain());

    const longest = Math.max(...to.frames.map(({ length }) => length));
    console.log(`${to.frames.length} frames, the longest ${longest} bytes`);
    expect(longest).toBeLessThanOrEqual(PAGE_BYTES_MAX);
    expect(to.frames.length).toBeGreaterThan(50);
    expect(addresses(to.frames)).toEqual(members.map(({ address }) => address).sort());
  });

  test("are listed in answers below the limit", () => {
    const pages = createMemberPages(view(members).current);
    const listed: string[] = [];
    let after: string | undefined;
    do {
      const answer = pages.list(PAGED, after);
      expect(answer.length).toBeLessThanOrEqual(PAGE_BYTES_MAX);
      const page = JSON.parse(answer.toString());
      listed.push(...page.members.map(({ address }: Member) => address));
      after = page.next;
    } while (after !== undefined);
    expect(listed).toEqual(members.map(({ address }) => address).sort());
  });

  test("are one frame that can be read for a node-unit of 0.1, without the largest labels", () => {
    const ordinary = member(named(3_000), 300);
    const to = link();
    createMemberPages(view([...members, ordinary]).current).send(to, OF_0_1);
    expect(to.drain()).toBe(false);
    expect(to.frames).toHaveLength(1);
    expect(to.frames[0]!.length).toBeLessThanOrEqual(WHOLE_BYTES_MAX);
    const { members: sent = [], after, next } = read(to.frames[0]!);
    expect([sent.length, after, next]).toEqual([2_001, undefined, undefined]);
    expect(sent).toContainEqual(ordinary);
    expect(sent).toContainEqual({ ...member(named(1_999)), tags: { node_unit: true } });
  });
});

test("a small fleet is one frame without any field of pages", () => {
  const to = link();
  createMemberPages(view([member(named(2)), member(named(1))]).current).send(to, PAGED);
  expect(to.drain()).toBe(false);
  expect(read(to.frames[0]!)).toEqual({
    ...{ type: "host_event", seq: 1, event: "INIT", view: "ready" },
    members: [member(named(1)), member(named(2))],
  });
  const empty = createMemberPages(view([]).current);
  expect(JSON.parse(empty.list(PAGED).toString())).toEqual({ seq: 1, view: "ready", members: [] });
});

test("the frames are written once per change, for all that serve the same tenants", () => {
  const { state, current } = view(fleetOf(100, 16_000));
  const pages = createMemberPages(current);
  const [one, two, other, later] = [link(), link(), link(), link()];
  pages.send(one, PAGED);
  pages.send(two, PAGED);
  pages.send(other, { ...PAGED, tenants: ["blue"] });
  expect(two.frames[0]).toBe(one.frames[0]);
  expect(addresses(other.frames)).toEqual([]);
  state.seq = 2;
  pages.send(later, PAGED);
  expect(later.frames[0]).not.toBe(one.frames[0]);
  expect(read(later.frames[0]!).seq).toBe(2);
});

test("a list that changes between two pages goes on, and none that stayed is left out", () => {
  const { state, current } = view(fleetOf(100, 16_000));
  const pages = createMemberPages(current);
  const to = link();
  pages.send(to, PAGED);
  let turn = 0;
  do {
    // Each change moves the ends of the pages.
    state.seq += 1;
    state.members = state.members.filter(({ address }) => address !== named(turn * 3));
    turn += 1;
  } while (to.drain());
  const sent = new Set(addresses(to.frames));
  expect(state.members.filter(({ address }) => !sent.has(address))).toEqual([]);
  const events = to.frames.map(read);
  expect(events.slice(1).map(({ after }) => after)).toEqual(
    events.slice(0, -1).map(({ next }) => next),
  );
  expect(new Set(addresses(to.frames)).size).toBe(addresses(to.frames).length);
});

test("a list whose rest has left ends with an empty page", () => {
  const { state, current } = view(fleetOf(100, 16_000));
  const to = link();
  createMemberPages(current).send(to, PAGED);
  const { next } = read(to.frames[0]!);
  state.members = [member(named(0))];
  state.seq = 2;
  expect(to.drain()).toBe(true);
  expect(to.drain()).toBe(false);
  expect(read(to.frames[1]!)).toMatchObject({ seq: 2, after: next, members: [] });
});

test("an INIT that is stopped sends no further page", () => {
  const to = link();
  createMemberPages(view(fleetOf(100, 16_000)).current)
    .send(to, PAGED)
    .stop();
  to.drain();
  expect(to.frames).toHaveLength(1);
});
