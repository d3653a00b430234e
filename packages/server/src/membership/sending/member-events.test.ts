import { type HostEvent, type Member, ServerToNode } from "@tenure/protocol";
import { expect, test } from "vitest";
import { createMemberPages } from "../member-pages.ts";
import type { LocalNode } from "../node-connection.ts";
import { ChangeLog, type NumberedChange } from "./change-log.ts";
import { createMemberEvents, UNSENT_BYTES_MAX } from "./member-events.ts";

const address = (n: number) =>
  `N${"A".repeat(28)}${[...String(n).padStart(5, "0")].map((digit) => "ABCDEFGHJK"[+digit]).join("")}`;
const member = (n: number, epoch = 1): Member => ({
  ...{ address: address(n), name: `n${n}`, instance_id: "i", epoch },
  ...{ claim_policy: "deployment_count", labels: {}, trusted_package_regexp: "" },
  ...{ custom_command: false, draining: false, tags: {}, joined_at: "2026-01-31T12:00:00.000Z" },
});

/** A fleet whose members the test adds, and sockets that take what the test lets them. */
function scene() {
  const members = new Map<string, Member>();
  const state = { seq: 0, view: "ready" as HostEvent["view"] };
  const events = createMemberEvents(
    createMemberPages(() => ({
      ...state,
      members: [...members.values()],
      ...{ rows: [], settlesInMs: 0 },
    })),
  );
  const nodes: LocalNode[] = [];

  function node(readsBatches: boolean) {
    const frames: Buffer[] = [];
    let drained: (() => void) | undefined;
    const link = {
      unsent: 0,
      sendText: (frame: Buffer) => frames.push(frame),
      unsentBytes: () => link.unsent,
      whenDrained: (callback: () => void) => {
        drained = callback;
      },
    };
    const local = {
      ...{ link, readsBatches, readsPages: true, isIntroduced: true, snapshot: {} },
      sent: { seq: 0, view: undefined, isWaiting: false },
      stopSending() {},
    } as unknown as LocalNode;
    events.sendAll(local);
    const joined = {
      ...{ local, link, frames },
      drain() {
        link.unsent = 0;
        drained?.();
      },
      read: () =>
        frames.splice(0).map((frame) => ServerToNode.parse(JSON.parse(`${frame}`)) as HostEvent),
    };
    joined.read();
    nodes.push(local);
    return joined;
  }

  function change(changed: Member[], left: Member[] = []): void {
    const changes: NumberedChange[] = [];
    for (const now of changed) {
      const old = members.get(now.address);
      members.set(now.address, now);
      changes.push({ seq: ++state.seq, new: now, ...(old && { old }) });
    }
    for (const old of left) {
      members.delete(old.address);
      changes.push({ seq: ++state.seq, old });
    }
    events.onRefresh({ changes, view: state.view, rows: [] }, nodes);
  }
  return { state, node, change };
}

test("all changes of a look are one frame, the same bytes for every node", () => {
  const { node, change } = scene();
  const nodes = Array.from({ length: 100 }, () => node(true));
  change([member(1), member(2), member(3)]);
  expect(nodes.every(({ frames }) => frames.length === 1)).toBe(true);
  expect(nodes.every(({ frames }) => frames[0] === nodes[0]!.frames[0])).toBe(true);
  change([member(2, 2)], [member(3)]);
  nodes[0]!.frames.shift();
  const [batch] = nodes[0]!.read();
  expect(batch).toMatchObject({ after_seq: 3, seq: 5, left: [{ address: address(3), epoch: 1 }] });
  expect(batch!.changed!.map(({ epoch }) => epoch)).toEqual([2]);
});

test("a node that reads no batches gets each change, and the list when the view changes", () => {
  const { state, node, change } = scene();
  const old = node(false);
  change([member(1), member(2)]);
  change([], [member(1)]);
  expect(old.read().map(({ event, seq, after_seq }) => [event, seq, after_seq])).toEqual([
    ["TERMINAL_CHANGE", 1, undefined],
    ["TERMINAL_CHANGE", 2, undefined],
    ["TERMINAL_CHANGE", 3, undefined],
  ]);
  state.view = "settling";
  change([]);
  expect(old.read().map(({ event, view }) => [event, view])).toEqual([["INIT", "settling"]]);
});

test("a new view alone costs a node with batches no list", () => {
  const { state, node, change } = scene();
  const { read } = node(true);
  change([member(1)]);
  read();
  state.view = "settling";
  change([]);
  expect(read()).toEqual([
    expect.objectContaining({ event: "TERMINAL_CHANGE", view: "settling", after_seq: 1, seq: 1 }),
  ]);
});

test("a socket that takes nothing gets no more, and then the last state of each member", () => {
  const { node, change } = scene();
  const slow = node(true);
  slow.link.unsent = UNSENT_BYTES_MAX + 1;
  for (let look = 1; look <= 1_000; look++) change([member(1, look), member(2, look)]);
  expect(slow.frames).toEqual([]);
  slow.drain();
  const [batch, ...others] = slow.read();
  expect(others).toEqual([]);
  expect(batch).toMatchObject({ after_seq: 0, seq: 2_000 });
  expect(batch!.changed!.map(({ epoch }) => epoch)).toEqual([1_000, 1_000]);
});

test("a socket that is too far behind gets the list again", () => {
  const { node, change } = scene();
  const slow = node(true);
  slow.link.unsent = UNSENT_BYTES_MAX + 1;
  for (let look = 1; look <= 6_000; look++) change([member(1, look), member(2, look)]);
  slow.drain();
  expect(slow.read().map(({ event, seq }) => [event, seq])).toEqual([["INIT", 12_000]]);
});

test("the log keeps a bounded number of changes", () => {
  const log = new ChangeLog(10);
  expect(log.since(0)).toEqual([]);
  for (let seq = 1; seq <= 1_000; seq++) log.append([{ seq, new: member(1) }]);
  expect(log.since(0)).toBeUndefined();
  expect(log.since(998)!.map(({ seq }) => seq)).toEqual([999, 1_000]);
  expect(log.since(1_000)).toEqual([]);
});
