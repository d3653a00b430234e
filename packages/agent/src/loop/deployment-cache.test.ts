import {
  type CallResult,
  CLAIM_CANDIDATES_MAX,
  type ListedDeployment,
  type Member,
} from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createHeldList } from "./deployment-cache.ts";
import { createRowIndex, FREE_ROWS_MAX } from "./row-index.ts";

type Answer = CallResult<"deployment.list">;
const row = (id: string, changes: Partial<ListedDeployment> = {}): ListedDeployment => ({
  id,
  name: id,
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  type: "deployment",
  address: "me",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 1,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
const member = (changes: Partial<Member> = {}): Member => ({
  address: "me",
  name: "me",
  instance_id: "i",
  epoch: 1,
  claim_policy: "deployment_count",
  labels: {},
  trusted_package_regexp: ".*",
  custom_command: false,
  draining: false,
  tags: {},
  joined_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
const answer = (changes: Partial<Answer>): Answer => ({
  revision: "r1",
  answer: "full",
  items: [],
  removed: [],
  resource_usage: {},
  ...changes,
});

/** Answers in order; an error is thrown. Remembers the revisions that were named. */
function scripted(answers: (Answer | Error)[]) {
  const asked: (string | undefined)[] = [];
  const list = createHeldList(async (revision) => {
    asked.push(revision);
    const next = answers.shift();
    if (!next || next instanceof Error) throw next ?? new Error("not expected");
    return next;
  });
  const own = () => list.concerning("me").map(({ id }) => id);
  return { list, asked, own };
}

describe("the list", () => {
  test("is read by revision: all, then what changed, then nothing", async () => {
    const { list, asked, own } = scripted([
      answer({ items: [row("a"), row("b")] }),
      answer({ revision: "r2", answer: "delta", items: [row("c")], removed: ["a"] }),
      answer({ revision: "r2", answer: "unchanged" }),
    ]);
    expect([await list.read(), await list.read(), await list.read()]).toEqual([true, true, false]);
    expect(own()).toEqual(["b", "c"]);
    expect(asked).toEqual([undefined, "r1", "r2"]);
  });

  test("keeps what it has of a row that cannot be read, where it has an owner", async () => {
    const bad = ["owned", "daemon", "free"].map((id) => ({ id, reason: "env: bad" }));
    const { list, own } = scripted([
      answer({
        items: [row("owned"), row("daemon", { type: "daemon" }), row("free", { address: "" })],
      }),
      answer({ revision: "r2", answer: "delta", skipped: bad }),
      answer({ revision: "r3", items: [row("new")], skipped: bad }),
    ]);
    await list.read();
    await list.read();
    expect(own().sort()).toEqual(["daemon", "owned"]);
    expect(list.relevant(new Map()).map(({ id }) => id)).not.toContain("free");
    await list.read();
    expect(own().sort()).toEqual(["daemon", "new", "owned"]);
    expect(list.skipped).toEqual(bad);
  });

  test("in pieces counts only when it is whole: half of it would stop the other half", async () => {
    const { list, asked, own } = scripted([
      answer({ items: [row("a"), row("b")] }),
      answer({ revision: "p1", items: [row("a")], more: true }),
      new Error("a piece came too late"),
      answer({ revision: "r3", answer: "delta", items: [row("c")] }),
    ]);
    await list.read();
    await expect(list.read()).rejects.toThrow("too late");
    expect(own()).toEqual(["a", "b"]);
    expect(await list.read()).toBe(true);
    expect(own()).toEqual(["a", "c"]);
    // It went on where it was, instead of beginning a long list again.
    expect(asked).toEqual([undefined, "r1", "p1", "p1"]);
  });

  test("in pieces begins again when it was distrusted on the way", async () => {
    const { list, asked, own } = scripted([
      answer({ revision: "p1", items: [row("a")], more: true }),
      new Error("the connection broke"),
      answer({ items: [row("c")] }),
    ]);
    await expect(list.read()).rejects.toThrow("broke");
    list.distrust();
    expect(await list.read()).toBe(true);
    expect(own()).toEqual(["c"]);
    expect(asked).toEqual([undefined, "p1", undefined]);
  });

  test("tells a change also when the read that brought it broke off", async () => {
    const { list, own } = scripted([
      answer({}),
      answer({ revision: "r2", answer: "delta", items: [row("a")], more: true }),
      new Error("the connection broke"),
      answer({ revision: "r2", answer: "unchanged" }),
    ]);
    await list.read();
    await expect(list.read()).rejects.toThrow("broke");
    expect(await list.read()).toBe(true);
    expect(own()).toEqual(["a"]);
  });

  test("that is distrusted is read whole, also when a read was on its way", async () => {
    const { list, asked } = scripted([answer({}), answer({ revision: "r9" }), answer({})]);
    await list.read();
    const onItsWay = list.read();
    list.distrust();
    await onItsWay;
    expect(list.isFresh).toBe(false);
    await list.read();
    expect(list.isFresh).toBe(true);
    expect(asked).toEqual([undefined, "r1", undefined]);
  });
});

describe("the index", () => {
  test("gives a pass only what may need something", () => {
    const index = createRowIndex();
    const rows = [
      row("mine"),
      row("free", { address: "" }),
      row("lost", { address: "gone" }),
      row("draining", { address: "drained" }),
      row("unfit", { address: "other", selector: { zone: "x" } }),
      row("off", { address: "gone", enabled: false }),
      row("daemon", { type: "daemon", address: "" }),
      row("odd", { type: "cron" }),
      row("next", { address: "other", moving_to: "me", move_state: "stopped" }),
    ];
    for (const one of rows) index.put(one);
    const members = new Map([
      ["me", member()],
      ["other", member()],
      ["drained", member({ draining: true })],
    ]);
    expect(index.relevant(members).map(({ id }) => id)).toEqual([
      "odd",
      "daemon",
      "free",
      "next",
      "lost",
      "draining",
      "unfit",
    ]);
    expect(index.concerning("me").map(({ id }) => id)).toEqual(["mine", "next", "daemon"]);
    expect(Object.fromEntries(index.counts)).toEqual({ me: 1, gone: 1, drained: 1, other: 2 });
  });

  test("gives of many free rows that ask for the same the oldest, in whatever order they came", () => {
    const index = createRowIndex();
    const count = FREE_ROWS_MAX + 100;
    const free = (age: number) =>
      row(`r${age}`, { address: "", updated_at: new Date(age * 1_000).toISOString() });
    const ages = Array.from({ length: count }, (_, age) => (age * 7) % count);
    for (const age of ages) index.put(free(age));
    index.put({ ...free(0), id: "other", selector: { zone: "x" } });
    const given = () => index.relevant(new Map()).map(({ id }) => id);
    const oldest = Array.from({ length: FREE_ROWS_MAX }, (_, age) => `r${age}`);
    expect(given()).toEqual([...oldest, "other"]);
    for (let age = 0; age < 100; age++) index.put({ ...free(age), address: "me" });
    const members = new Map([["me", member()]]);
    expect(index.relevant(members).map(({ id }) => id)).toEqual([
      ...Array.from({ length: FREE_ROWS_MAX }, (_, age) => `r${age + 100}`),
      "other",
    ]);
  });

  test("gives of more free rows than those some that few others get, and never one that is taken", () => {
    const index = createRowIndex();
    const free = (nth: number) => row(`row-${nth}`, { address: "" });
    for (let nth = 0; nth < FREE_ROWS_MAX; nth++) index.put(free(nth));
    expect(index.aside("me")).toEqual([]);
    for (let nth = FREE_ROWS_MAX; nth < 20_000; nth++) index.put(free(nth));
    const given = (me: string) => index.aside(me).map(({ id }) => id);
    expect(given("me")).toHaveLength(CLAIM_CANDIDATES_MAX);
    const nodes = Array.from({ length: 100 }, (_, nth) => `node-${nth}`);
    expect(new Set(nodes.flatMap(given)).size).toBeGreaterThan(3_000);
    const [first] = given("me");
    index.put(row(first!, { address: "other" }));
    expect(given("me")).not.toContain(first);
  });

  test("follows a row wherever it goes", () => {
    const index = createRowIndex();
    index.put(row("a", { address: "" }));
    index.put(row("a", { address: "me" }));
    expect(Object.fromEntries(index.counts)).toEqual({ me: 1 });
    index.put(row("a", { address: "me", enabled: false }));
    expect(index.counts.size).toBe(0);
    index.put(row("a", { type: "daemon", address: "" }));
    index.remove("a");
    expect(index.concerning("me")).toEqual([]);
    expect(index.size).toBe(0);
  });
});
