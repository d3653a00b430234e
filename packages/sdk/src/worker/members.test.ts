import { type HostEvent, type Member, TenureError } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { member, NODES } from "../../testing/node-fixture.ts";
import type { Calls } from "./calls.ts";
import {
  listMembers,
  type MemberList,
  type MemberMap,
  Members,
  type MembersView,
} from "./members.ts";

const init = (seq: number, ...members: MemberList["members"]): HostEvent => ({
  type: "host_event",
  seq,
  event: "INIT",
  view: "ready",
  members,
});
const change = (seq: number, fields: Partial<HostEvent> = {}): HostEvent => ({
  type: "host_event",
  seq,
  event: "TERMINAL_CHANGE",
  view: "ready",
  ...fields,
});
const listed = (seq: number, ...members: MemberList["members"]): MemberList => ({
  seq,
  view: "ready",
  members,
});

/** Members whose lists the test answers, one question at a time. */
function watch(map?: MemberMap) {
  const clock = createManualClock();
  const views: MembersView[] = [];
  const problems: TenureError[] = [];
  const asked: { answer(list: MemberList): Promise<void>; fail(): Promise<void> }[] = [];
  const members = new Members({
    clock,
    random: () => 0.5,
    map,
    changed: (view) => views.push(view),
    problem: (error) => problems.push(error),
    list: () =>
      new Promise((resolve, reject) => {
        const settled = async (settle: () => void) => {
          settle();
          await Promise.resolve();
          await Promise.resolve();
        };
        asked.push({
          answer: (list) => settled(() => resolve(list)),
          fail: () =>
            settled(() => reject(new TenureError("DEPENDENCY_DOWN", { dependency: "Postgres" }))),
        });
      }),
  });
  const present = () => [...(members.current?.members.values() ?? [])].map(({ name }) => name);
  return { clock, members, views, problems, asked, present };
}

test("a map that is given gets each list and each change, with their numbers", () => {
  const got: unknown[] = [];
  const { members, present } = watch({
    read: () => new Map([[NODES.cyd, member("cyd")]]),
    replace: (list, seq) => got.push([list.map(({ name }) => name), seq]),
    apply: (event) => got.push(event.seq),
  });
  members.receive(init(1, member("ada")));
  members.receive(change(2, { new: member("bob") }));
  members.receive(init(7));
  expect(got).toEqual([[["ada"], 1], 2, [[], 7]]);
  expect(present()).toEqual(["cyd"]);
});

describe("events in order", () => {
  test("add, change and remove members", () => {
    const { members, present, asked } = watch();
    members.receive(init(1, member("ada")));
    members.receive(change(2, { new: member("bob") }));
    members.receive(change(3, { new: { ...member("ada"), draining: true }, old: member("ada") }));
    expect(present()).toEqual(["ada", "bob"]);
    expect(members.current?.members.get(NODES.ada)?.draining).toBe(true);

    members.receive(change(4, { old: member("bob") }));
    expect(present()).toEqual(["ada"]);
    expect(asked).toEqual([]);
  });

  test("may change only the view", () => {
    const { members } = watch();
    members.receive({ ...init(1, member("ada")), view: "settling" });
    expect(members.current?.view).toBe("settling");
    members.receive(change(2));
    expect(members.current?.view).toBe("ready");
  });

  test("that arrive twice are applied once", () => {
    const { members, views, present } = watch();
    members.receive(init(5, member("ada")));
    members.receive(change(6, { old: member("ada") }));
    members.receive(change(5, { new: member("ada") }));
    members.receive(change(6, { new: member("bob") }));

    expect(present()).toEqual([]);
    expect(views).toHaveLength(2);
  });

  test("do not change the members of a view that was read before", () => {
    const { members, views } = watch();
    members.receive(init(1, member("ada")));
    const before = views[0]?.members;
    members.receive(change(2, { new: member("bob") }));
    members.receive(change(3, { old: member("ada") }));

    expect([...(before?.keys() ?? [])]).toEqual([NODES.ada]);
    expect(views[0]?.members).toBe(before);
    expect([...(views[2]?.members.keys() ?? [])]).toEqual([NODES.bob]);
  });

  test("that change only the view keep the same map, so that readers can compare", () => {
    const { members } = watch();
    members.receive({ ...init(1, member("ada")), view: "settling" });
    const before = members.current?.members;
    members.receive(change(2));
    expect(members.current?.view).toBe("ready");
    expect(members.current?.members).toBe(before);
  });

  test("of a former connection do not remove a node that reconnected", () => {
    const { members, present } = watch();
    members.receive(init(1, member("ada", 8)));
    members.receive(change(2, { old: member("ada", 7) }));

    expect(present()).toEqual(["ada"]);
  });
});

describe("a gap", () => {
  test("makes the view settling until the list arrives, and applies the events from meanwhile", async () => {
    const { members, views, asked, present } = watch();
    members.receive(init(1, member("ada")));
    members.receive(change(3, { new: member("bob") }));
    expect(members.current?.view).toBe("settling");
    members.receive(change(4, { new: member("cyd") }));
    members.receive(change(5, { old: member("bob") }));
    expect(asked).toHaveLength(1);

    await asked[0]?.answer(listed(3, member("bob")));
    expect(present()).toEqual(["cyd"]);
    expect(members.current?.view).toBe("ready");
    members.receive(change(6, { new: member("ada") }));
    expect(present()).toEqual(["cyd", "ada"]);
    expect(asked).toHaveLength(1);
    expect(views.at(-1)).toBe(members.current);
  });

  test("before the first list is a gap as well", async () => {
    const { members, asked, present } = watch();
    members.receive(change(7, { new: member("bob") }));
    await asked[0]?.answer(listed(7, member("bob"), member("ada")));

    expect(present()).toEqual(["bob", "ada"]);
  });

  test("is closed by INIT too, and the open request is ignored", async () => {
    const { members, asked, present } = watch();
    members.receive(init(1));
    members.receive(change(3));
    members.receive(init(9, member("cyd")));
    await asked[0]?.answer(listed(3, member("ada")));

    expect(present()).toEqual(["cyd"]);
  });

  test("that an old list does not close stays settling, and the list is requested again", async () => {
    const { members, views, asked, clock } = watch();
    members.receive(init(1));
    members.receive(change(5, { new: member("bob") }));
    const shown = views.length;
    await asked[0]?.answer(listed(2, member("ada")));
    expect(views.slice(shown).map(({ view }) => view)).toEqual(["settling"]);

    clock.advance(999);
    expect(asked).toHaveLength(1);
    clock.advance(1);
    await asked[1]?.answer(listed(4, member("ada")));
    expect(members.current?.view).toBe("ready");
    expect(members.current?.members.size).toBe(2);
  });

  test("is retried when the server does not answer", async () => {
    const { members, asked, clock, problems } = watch();
    members.receive(init(1));
    members.receive(change(3));
    await asked[0]?.fail();
    expect(problems).toHaveLength(1);
    members.receive(change(4));
    expect(asked).toHaveLength(1);
    clock.advance(1_000);
    await asked[1]?.answer(listed(4));

    expect(members.current?.view).toBe("ready");
  });

  test("of thousands of events costs no memory, and none of them is lost", async () => {
    const { members, asked, clock, present } = watch();
    members.receive(init(0));
    for (let seq = 2; seq < 5_000; seq++) members.receive(change(seq));
    members.receive(change(5_000, { new: member("bob") }));
    // Its end is 4,000 events behind what was kept.
    await asked[0]?.answer(listed(1));
    expect(members.current?.view).toBe("settling");
    clock.advance(1_000);
    await asked[1]?.answer(listed(4_500, member("ada")));

    expect(present()).toEqual(["ada", "bob"]);
    expect(members.current?.view).toBe("ready");
  });
});

describe("a batch", () => {
  const batch = (after: number, seq: number, fields: Partial<HostEvent> = {}): HostEvent =>
    change(seq, { after_seq: after, changed: [], left: [], ...fields });

  test("has the last states of several members", () => {
    const { members, present, views, asked } = watch();
    members.receive(init(1, member("ada"), member("bob", 3)));
    const left = [{ address: NODES.bob, epoch: 3 }];
    members.receive(batch(1, 9, { changed: [member("cyd")], left }));
    members.receive(batch(9, 9, { view: "settling" }));
    expect(present()).toEqual(["ada", "cyd"]);
    expect(views.map(({ view }) => view)).toEqual(["ready", "ready", "settling"]);
    members.receive(batch(9, 10, { left: [{ address: NODES.ada, epoch: 0 }] }));
    expect(present()).toEqual(["ada", "cyd"]);
    expect(asked).toEqual([]);
  });

  test("that begins before the list is applied, one that is older is not, one behind a gap asks for the list", async () => {
    const { members, present, asked } = watch();
    members.receive(init(5, member("ada")));
    members.receive(batch(1, 4, { left: [{ address: NODES.ada, epoch: 9 }] }));
    expect(present()).toEqual(["ada"]);
    members.receive(batch(3, 7, { changed: [member("bob")] }));
    expect(present()).toEqual(["ada", "bob"]);
    members.receive(batch(8, 9, { changed: [member("cyd")] }));
    members.receive(batch(9, 9, { view: "ready" }));
    expect(asked).toHaveLength(1);
    await asked[0]?.answer(listed(8, member("ada")));
    expect(present()).toEqual(["ada", "cyd"]);
    expect(members.current?.view).toBe("ready");
  });
});

describe("an INIT in pages", () => {
  const [first, second, third] = Object.keys(NODES)
    .map((name) => member(name as keyof typeof NODES))
    .sort((a, b) => (a.address < b.address ? -1 : 1)) as [Member, Member, Member];
  const page = (
    seq: number,
    shown: Member[],
    { after, next }: { after?: Member; next?: Member },
  ): HostEvent => ({
    ...init(seq, ...shown),
    ...(after && { after: after.address }),
    ...(next && { next: next.address }),
  });

  test("is applied when its last page arrives, with the changes from meanwhile", () => {
    const { members, asked, views, present } = watch();
    members.receive(page(4, [first], { next: first }));
    members.receive(change(5, { old: first }));
    members.receive(page(5, [second], { after: first, next: second }));
    members.receive(change(6, { new: { ...second, draining: true }, old: second }));
    expect(members.current).toBeUndefined();
    members.receive(page(6, [third], { after: second }));

    expect(present()).toEqual([second.name, third.name]);
    expect(views.every(({ view }) => view === "ready")).toBe(true);
    expect(members.current?.members.get(second.address)?.draining).toBe(true);
    members.receive(change(7, { new: first }));
    expect(present()).toHaveLength(3);
    expect(asked).toEqual([]);
  });

  test("keeps the view settling until it is complete", () => {
    const { members, present } = watch();
    members.receive(init(1, first, second));
    members.receive(page(2, [first], { next: first }));
    expect(members.current?.view).toBe("settling");
    expect(present()).toEqual([first.name, second.name]);
    members.receive(page(2, [third], { after: first }));
    expect(members.current?.view).toBe("ready");
    expect(present()).toEqual([first.name, third.name]);
  });

  test("is replaced by a newer one", () => {
    const { members, present } = watch();
    members.receive(page(1, [first], { next: first }));
    members.receive(page(2, [second], { next: second }));
    members.receive(page(2, [third], { after: second }));
    expect(present()).toEqual([second.name, third.name]);
  });

  test("with a page that cannot be parsed is replaced by a request", async () => {
    const { members, asked, present } = watch();
    members.receive(page(1, [first], { next: first }));
    members.refresh();
    members.receive(page(1, [third], { after: second }));
    expect(members.current).toBeUndefined();
    await asked[0]?.answer(listed(1, first, second, third));
    expect(present()).toHaveLength(3);
    expect(asked).toHaveLength(1);
  });

  test("that a lost connection cut short is forgotten", () => {
    const { members, present } = watch();
    members.receive(page(1, [first], { next: first }));
    members.down();
    members.receive(page(1, [second], { after: first }));
    expect(members.current).toBeUndefined();
    members.receive(init(1, third));
    expect(present()).toEqual([third.name]);
  });
});

test("a list in pages is requested to its end, and ready only if every page is", async () => {
  const answers: Record<string, MemberList> = {
    "{}": { ...listed(3, member("ada")), next: "a" },
    '{"after":"a"}': { ...listed(5, member("bob")), view: "settling", next: "b" },
    '{"after":"b"}': listed(6, member("cyd")),
  };
  const call = (async (_method: string, params: object) =>
    answers[JSON.stringify(params)]) as Calls["call"];
  const { seq, view, members } = await listMembers(call);
  expect({ seq, view, names: members.map(({ name }) => name) }).toEqual({
    seq: 3,
    view: "settling",
    names: ["ada", "bob", "cyd"],
  });
});

describe("a node without a connection", () => {
  test("has a settling view, and sequence numbers start again", async () => {
    const { members, asked, present, clock } = watch();
    members.receive(init(1, member("ada")));
    members.receive(change(3));
    members.down();
    await asked[0]?.answer(listed(3, member("bob")));
    clock.advance(10_000);
    expect(members.current?.view).toBe("settling");
    expect(present()).toEqual(["ada"]);
    expect(asked).toHaveLength(1);

    // Another instance counts for itself.
    members.receive(init(1, member("cyd")));
    members.receive(change(2, { new: member("ada") }));
    expect(present()).toEqual(["cyd", "ada"]);
    expect(members.current?.view).toBe("ready");
  });
});
