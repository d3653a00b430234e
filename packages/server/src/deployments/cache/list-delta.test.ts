import { type CallResult, type ListedDeployment, serves } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { DeploymentRow } from "../deployment-row.ts";
import { createDeploymentCache, type DeploymentCache } from "./deployment-cache.ts";
import { answerList, type ListReader, listParts } from "./list-delta.ts";

const reader: ListReader = {
  address: "me",
  labels: { zone: "x" },
  trusted_package_regexp: "web@.*",
  custom_command: false,
  claim_policy: "resource_usage",
};
const samples = { me: { cpu_percent: 1, memory_percent: 2, memory_mb: 3 } };

const row = (id: string, changes: Partial<DeploymentRow> = {}): DeploymentRow => ({
  id,
  name: id,
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  args: ["--secret"],
  env: { TOKEN: "s3cret" },
  type: "deployment",
  address: "",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 0,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: new Date(0),
  updated_at: new Date(0),
  ...changes,
});

const ask = (
  cache: DeploymentCache,
  revision?: string,
  changes: { reader?: Partial<ListReader>; origin?: string; answerBytesMax?: number } = {},
): CallResult<"deployment.list"> => {
  const answer = answerList({
    cache,
    origin: changes.origin ?? "i1",
    reader: { ...reader, ...changes.reader },
    revision,
    matches: matchWhole,
    samples: () => samples,
    answerBytesMax: changes.answerBytesMax ?? 512 * 1_024,
  });
  return JSON.parse(Buffer.concat(listParts(answer)).toString());
};

test("references to secrets and their versions go to the node that runs the row, if it takes secrets", () => {
  const cache = createDeploymentCache();
  const secret = { env: { PASSWORD: { secret: "db" } }, secret_versions: { db: 3 } };
  for (const [id, address] of Object.entries({ own: "me", free: "", other: "you" }))
    cache.put(row(id, { ...secret, address }));
  const takes = { tags: { node_unit_secrets: true } };
  const [own, ...others] = ask(cache, undefined, { reader: takes }).items;
  expect(own).toMatchObject({ id: "own", ...secret, selector: {} });
  for (const item of others) {
    expect(item).toMatchObject({ uses_secrets: true, selector: {} });
    expect(Object.keys(item)).not.toContain("env");
    expect(Object.keys(item)).not.toContain("secret_versions");
  }
  // An agent that does not know secrets would start it with the text "[object Object]".
  const { items, revision } = ask(cache);
  for (const item of items) {
    expect(Object.keys(item)).not.toContain("env");
    expect(item.selector).toEqual({ "tenure/needs-an-agent-with-secrets": "true" });
  }
  expect(ask(cache, revision, { reader: takes }).answer).toBe("full");
});

describe("the list of a node", () => {
  test("a node reads everything first, then the changes, then unchanged", () => {
    const cache = createDeploymentCache();
    cache.put(row("a"));
    cache.put(row("b"));
    const first = ask(cache);
    expect(first).toMatchObject({ answer: "full", removed: [] });
    expect(first.items.map(({ id }) => id)).toEqual(["a", "b"]);
    cache.put(row("a", { generation: 1, address: "other" }));
    cache.remove("b");
    const second = ask(cache, first.revision);
    expect(second).toMatchObject({ answer: "delta", removed: ["b"] });
    expect(second.items).toMatchObject([{ id: "a", generation: 1 }]);
    expect(ask(cache, second.revision)).toEqual({
      revision: second.revision,
      answer: "unchanged",
      items: [],
      removed: [],
      resource_usage: {},
    });
  });

  test("a node reads everything again at another instance, with other labels, and with an unknown revision", () => {
    const cache = createDeploymentCache();
    cache.put(row("a"));
    const { revision } = ask(cache);
    expect(ask(cache, revision).answer).toBe("unchanged");
    expect(ask(cache, revision, { origin: "i2" }).answer).toBe("full");
    expect(ask(cache, revision, { reader: { labels: {} } }).answer).toBe("full");
    for (const word of ["", "x", `${revision}9`, revision.replace(/\d+$/, "1e3")])
      expect(ask(cache, word || undefined).answer, word).toBe("full");
  });

  test("a row written again as it was is no change", () => {
    const cache = createDeploymentCache();
    cache.put(row("a"));
    const { revision } = ask(cache);
    expect(cache.put(row("a"))).toBe(false);
    expect(ask(cache, revision).answer).toBe("unchanged");
  });

  test.each([
    ["its own row", { address: "me" }, true],
    ["a row that moves here", { address: "other", moving_to: "me" }, true],
    ["a daemon it runs", { type: "daemon" }, true],
    ["a daemon with its labels", { type: "daemon", selector: { zone: "x" } }, true],
    ["a free row", {}, false],
    ["another's row", { address: "other" }, false],
    ["a disabled daemon", { type: "daemon", enabled: false }, false],
    ["a daemon for other labels", { type: "daemon", selector: { zone: "y" } }, false],
    ["a daemon it does not trust", { type: "daemon", package_name: "evil" }, false],
    ["a row of an unknown type", { type: "cron", address: "me" }, false],
  ])("shows args and env of %s: %j %s", (_, changes, full) => {
    const cache = createDeploymentCache();
    cache.put(row("a", changes));
    const [item] = ask(cache).items;
    expect(JSON.stringify(item).includes("s3cret")).toBe(full);
    expect(item?.args === undefined).toBe(!full);
  });

  test("a list has samples only while there is something to claim, for policies that use them", () => {
    const cache = createDeploymentCache();
    cache.put(row("a"));
    expect(ask(cache).resource_usage).toEqual(samples);
    expect(
      ask(cache, undefined, { reader: { claim_policy: "deployment_count" } }).resource_usage,
    ).toEqual({});
    cache.put(row("a", { address: "other", generation: 1 }));
    expect(ask(cache).resource_usage).toEqual({});
  });

  test("a long list is cut, and the next one continues there", () => {
    const cache = createDeploymentCache();
    for (let n = 0; n < 100; n++) cache.put(row(`r${n}`));
    const ids: string[] = [];
    let revision: string | undefined;
    let answers = 0;
    for (;;) {
      const answer = ask(cache, revision, { answerBytesMax: 4_000 });
      expect(answer.answer).toBe(answers === 0 ? "full" : "delta");
      ids.push(...answer.items.map(({ id }) => id));
      revision = answer.revision;
      answers++;
      if (!answer.more) break;
    }
    expect(ids).toEqual(Array.from({ length: 100 }, (_, n) => `r${n}`));
    expect(answers).toBeGreaterThan(5);
  });
});

describe("the list of a node of one tenant", () => {
  const blue = { reader: { tenants: ["blue"] } };

  test("a row that other tenants had is not listed as removed, whatever revision is sent", () => {
    const cache = createDeploymentCache();
    cache.put(row("own", { tenant: "blue" }));
    const first = ask(cache, undefined, blue);
    cache.put(row("foreign"));
    cache.put(row("gone", { tenant: "red" }));
    cache.remove("gone");
    cache.put(row("moved", { tenant: "red" }));
    cache.put(row("moved", { tenant: "green", generation: 1 }));
    for (const revision of [first.revision, first.revision.replace(/\d+$/, "1")])
      expect(ask(cache, revision, blue)).toMatchObject({ answer: "delta", removed: [], items: [] });
  });

  test("a row that left the tenant is listed as removed once", () => {
    const cache = createDeploymentCache();
    cache.put(row("moved", { tenant: "blue" }));
    cache.put(row("deleted", { tenant: "blue" }));
    const first = ask(cache, undefined, blue);
    cache.put(row("moved", { tenant: "red", generation: 1 }));
    cache.remove("deleted");
    const second = ask(cache, first.revision, blue);
    expect(second.removed).toEqual(["moved", "deleted"]);
    cache.put(row("moved", { tenant: "red", generation: 2 }));
    cache.remove("moved");
    expect(ask(cache, second.revision, blue).removed).toEqual([]);
    // Another reader may be further behind.
    expect([...ask(cache, first.revision, blue).removed].sort()).toEqual(["deleted", "moved"]);
  });
});

// --- whatever happens, whoever follows the deltas has what a full list has ---

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constant("put" as const),
      id: fc.integer({ min: 0, max: 8 }),
      tenant: fc.constantFrom("default", "default", "blue", "red"),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      act: fc.constant("remove" as const),
      id: fc.integer({ min: 0, max: 8 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ act: fc.constant("read" as const), id: fc.integer({ min: 0, max: 2 }) }),
  },
);

test("applied deltas, late or in pieces, give the full list", () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 300, size: "max" }),
      fc.constantFrom(1, 600, 5_000),
      fc.constantFrom(["default"], ["blue", "red"], ["*"]),
      (steps, answerBytesMax, tenants) => {
        const cache = createDeploymentCache({ removedMax: 2 });
        const followers = [0, 1, 2].map(() => ({
          revision: undefined as string | undefined,
          rows: new Map<string, ListedDeployment>(),
        }));
        const follow = (follower: (typeof followers)[number]) => {
          const answer = ask(cache, follower.revision, {
            answerBytesMax,
            reader: { tenants: [...tenants] },
          });
          if (answer.answer === "full") follower.rows.clear();
          for (const id of answer.removed) follower.rows.delete(id);
          for (const item of answer.items) follower.rows.set(item.id, item);
          follower.revision = answer.revision;
          return answer.more === true;
        };
        let generation = 0;
        for (const { id, ...step } of steps) {
          if (step.act === "put")
            cache.put(row(`r${id}`, { generation: ++generation, tenant: step.tenant }));
          if (step.act === "remove") cache.remove(`r${id}`);
          if (step.act === "read") follow(followers[id]!);
        }
        const full = [...cache.rows()]
          .filter(({ tenant = "default" }) => serves(tenants, tenant))
          .map(({ id, generation: at }) => [id, at])
          .sort();
        for (const follower of followers) {
          while (follow(follower));
          const have = [...follower.rows.values()].map((item) => [item.id, item.generation]).sort();
          expect(have).toEqual(full);
        }
        const unassigned = [...cache.rows()].filter(({ address }) => address === "").length;
        expect(cache.count("unassigned")).toBe(unassigned);
      },
    ),
    { numRuns: 200 },
  );
});

test("a node is an owner while it has an enabled deployment", () => {
  const cache = createDeploymentCache();
  cache.put(row("a", { address: "x" }));
  cache.put(row("b", { address: "x" }));
  cache.put(row("c", { address: "y", enabled: false }));
  cache.put(row("d", { address: "z", type: "daemon" }));
  expect(["x", "y", "z", ""].filter(cache.owns)).toEqual(["x"]);
  cache.put(row("a", { address: "y", generation: 1 }));
  expect(["x", "y"].filter(cache.owns)).toEqual(["x", "y"]);
  cache.remove("b");
  expect(["x", "y"].filter(cache.owns)).toEqual(["y"]);
});

test("the cost of an answer depends on the changes, not on the length of the list", () => {
  const cache = createDeploymentCache();
  for (let n = 0; n < 10_000; n++) cache.put(row(`r${n}`));
  const { revision } = ask(cache, undefined, { answerBytesMax: 1e9 });
  for (let n = 0; n < 50_000; n++) cache.put(row("r7", { generation: n + 1 }));
  let read = 0;
  const counted: DeploymentCache = {
    ...cache,
    *since(position) {
      for (const change of cache.since(position)) {
        read++;
        yield change;
      }
    },
  };
  expect(ask(counted, revision).items).toHaveLength(1);
  expect(read).toBe(1);
});
