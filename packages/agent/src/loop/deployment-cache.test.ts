import {
  type CallResult,
  CLAIM_CANDIDATES_MAX,
  FREE_ROWS_MAX,
  type ListedDeployment,
  type Member,
} from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { member as anyMember, row as anyRow } from "../../testing/rows.ts";
import { createDeploymentCache } from "./deployment-cache.ts";
import { createRowIndex } from "./row-index.ts";

type Answer = CallResult<"deployment.list">;
const row = (id: string, changes: Partial<ListedDeployment> = {}) =>
  anyRow({ id, name: id, address: "me", generation: 1, ...changes });
const member = (changes: Partial<Member> = {}) => anyMember("me", { tags: {}, ...changes });
const answer = (changes: Partial<Answer>): Answer => ({
  revision: "r1",
  answer: "full",
  items: [],
  removed: [],
  resource_usage: {},
  ...changes,
});

/** A cache whose server gives these answers in order, and the revisions it requested. */
function scripted(answers: (Answer | Error)[]) {
  const requested: (string | undefined)[] = [];
  const cache = createDeploymentCache(async (revision) => {
    requested.push(revision);
    const next = answers.shift();
    if (!next || next instanceof Error) throw next ?? new Error("not expected");
    return next;
  });
  const own = () => cache.forNode("me").map(({ id }) => id);
  return { cache, requested, own };
}

describe("the cache", () => {
  test("reads by revision: everything, then the changes, then nothing", async () => {
    const { cache, requested, own } = scripted([
      answer({ items: [row("a"), row("b")] }),
      answer({ revision: "r2", answer: "delta", items: [row("c")], removed: ["a"] }),
      answer({ revision: "r2", answer: "unchanged" }),
    ]);
    expect([await cache.refresh(), await cache.refresh(), await cache.refresh()]).toEqual([
      true,
      true,
      false,
    ]);
    expect(own()).toEqual(["b", "c"]);
    expect(requested).toEqual([undefined, "r1", "r2"]);
  });

  test("keeps the last version of an unreadable row that has an owner", async () => {
    const bad = ["owned", "daemon", "free"].map((id) => ({ id, reason: "env: bad" }));
    const { cache, own } = scripted([
      answer({
        items: [row("owned"), row("daemon", { type: "daemon" }), row("free", { address: "" })],
      }),
      answer({ revision: "r2", answer: "delta", skipped: bad }),
      answer({ revision: "r3", items: [row("new")], skipped: bad }),
    ]);
    await cache.refresh();
    await cache.refresh();
    expect(own().sort()).toEqual(["daemon", "owned"]);
    expect(cache.relevant(new Map()).map(({ id }) => id)).not.toContain("free");
    await cache.refresh();
    expect(own().sort()).toEqual(["daemon", "new", "owned"]);
    expect(cache.skipped).toEqual(bad);
  });

  test("counts a row of its own that became unreadable, which the instance does not count", async () => {
    const subset = { free: [], recent: {}, others: [] };
    const { cache, own } = scripted([
      answer({ items: [row("a")], subset: { ...subset, owners: [[1, 1, "me"]], held: ["a"] } }),
      answer({
        ...{ revision: "r2", answer: "delta", skipped: [{ id: "a", reason: "env: bad" }] },
        subset: { ...subset, owners: [[1, 0]], held: ["a"] },
      }),
      answer({ revision: "r3", answer: "delta", subset: { ...subset, owners: [], held: [] } }),
    ]);
    await cache.refresh();
    await cache.refresh();
    expect(own()).toEqual(["a"]);
    expect([...cache.counts]).toEqual([["me", 1]]);
    await cache.refresh();
    expect(own()).toEqual([]);
    expect([...cache.counts]).toEqual([]);
  });

  test("uses a list in pages only when it is complete: half a list would stop half of the children", async () => {
    const { cache, requested, own } = scripted([
      answer({ items: [row("a"), row("b")] }),
      answer({ revision: "p1", items: [row("a")], more: true }),
      new Error("a page came too late"),
      answer({ revision: "r3", answer: "delta", items: [row("c")] }),
    ]);
    await cache.refresh();
    await expect(cache.refresh()).rejects.toThrow("too late");
    expect(own()).toEqual(["a", "b"]);
    expect(await cache.refresh()).toBe(true);
    expect(own()).toEqual(["a", "c"]);
    // The next refresh continues after the last page instead of reading a long list again.
    expect(requested).toEqual([undefined, "r1", "p1", "p1"]);
  });

  test("reads a list in pages from its start after an invalidation", async () => {
    const { cache, requested, own } = scripted([
      answer({ revision: "p1", items: [row("a")], more: true }),
      new Error("the connection broke"),
      answer({ items: [row("c")] }),
    ]);
    await expect(cache.refresh()).rejects.toThrow("broke");
    cache.invalidate();
    expect(await cache.refresh()).toBe(true);
    expect(own()).toEqual(["c"]);
    expect(requested).toEqual([undefined, "p1", undefined]);
  });

  test("returns a change also when the refresh that read it failed later", async () => {
    const { cache, own } = scripted([
      answer({}),
      answer({ revision: "r2", answer: "delta", items: [row("a")], more: true }),
      new Error("the connection broke"),
      answer({ revision: "r2", answer: "unchanged" }),
    ]);
    await cache.refresh();
    await expect(cache.refresh()).rejects.toThrow("broke");
    expect(await cache.refresh()).toBe(true);
    expect(own()).toEqual(["a"]);
  });

  test("reads the whole list after an invalidation, also one during a refresh", async () => {
    const { cache, requested } = scripted([answer({}), answer({ revision: "r9" }), answer({})]);
    await cache.refresh();
    const inFlight = cache.refresh();
    cache.invalidate();
    await inFlight;
    expect(cache.isFresh).toBe(false);
    await cache.refresh();
    expect(cache.isFresh).toBe(true);
    expect(requested).toEqual([undefined, "r1", undefined]);
  });
});

describe("the index", () => {
  test("gives a pass only rows that may need an action", () => {
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
    expect(index.forNode("me").map(({ id }) => id)).toEqual(["mine", "next", "daemon"]);
    expect(Object.fromEntries(index.counts)).toEqual({ me: 1, gone: 1, drained: 1, other: 2 });
  });

  test("gives the oldest of many free rows with the same demand, regardless of their order of arrival", () => {
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

  test("gives each node a claim window that few others share, without rows that have an owner", () => {
    const index = createRowIndex();
    const free = (nth: number) => row(`row-${nth}`, { address: "" });
    for (let nth = 0; nth < FREE_ROWS_MAX; nth++) index.put(free(nth));
    expect(index.claimWindow("me")).toEqual([]);
    for (let nth = FREE_ROWS_MAX; nth < 20_000; nth++) index.put(free(nth));
    const given = (me: string) => index.claimWindow(me).map(({ id }) => id);
    expect(given("me")).toHaveLength(CLAIM_CANDIDATES_MAX);
    const nodes = Array.from({ length: 100 }, (_, nth) => `node-${nth}`);
    expect(new Set(nodes.flatMap(given)).size).toBeGreaterThan(3_000);
    const [first] = given("me");
    index.put(row(first!, { address: "other" }));
    expect(given("me")).not.toContain(first);
  });

  test("moves a row between its groups when the row changes", () => {
    const index = createRowIndex();
    index.put(row("a", { address: "" }));
    index.put(row("a", { address: "me" }));
    expect(Object.fromEntries(index.counts)).toEqual({ me: 1 });
    index.put(row("a", { address: "me", enabled: false }));
    expect(index.counts.size).toBe(0);
    index.put(row("a", { type: "daemon", address: "" }));
    index.remove("a");
    expect(index.forNode("me")).toEqual([]);
    expect(index.size).toBe(0);
  });
});
