import type { CallResult } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import { describe, expect, test } from "vitest";
import type { DeploymentRow } from "../deployment-row.ts";
import { createDeploymentCache, type DeploymentCache } from "./deployment-cache.ts";
import { type ListReader, listParts } from "./list-delta.ts";
import { answerSubset } from "./list-subset.ts";

// tests/simulation/claims/subset.test.ts compares what nodes decide; these are the limits that it does not reach.

const reader: ListReader = {
  ...{ address: "me", labels: {}, trusted_package_regexp: ".*", custom_command: true },
  ...{ claim_policy: "deployment_count", tenants: ["*"] },
};

const row = (id: string, changes: Partial<DeploymentRow> = {}): DeploymentRow => ({
  ...{ id, name: id, package_name: "web", package_version: "1.0.0", command: "" },
  ...{ args: [], env: {}, type: "deployment", address: "", enabled: true, selector: {} },
  ...{ lost_after_ms: 0, generation: 0, revision: 1, moving_to: "", move_state: "" as const },
  ...{ created_at: new Date(0), updated_at: new Date(0) },
  ...changes,
});

const PROBLEM = {
  ...{ event: "deployment.skipped" as const, message: "bad", subject: "d", details: {} },
};

function read(
  cache: DeploymentCache,
  revision?: string,
  {
    refused = {},
    owners = [],
    answerBytesMax = 100_000,
  }: { refused?: Record<string, string[]>; owners?: string[]; answerBytesMax?: number } = {},
): CallResult<"deployment.list"> {
  const answer = answerSubset({
    ...{ cache, reader, revision, origin: "i", matches: matchWhole, samples: () => ({}) },
    ...{ owners, refused: new Map(Object.entries(refused)), answerBytesMax },
  });
  return JSON.parse(Buffer.concat(listParts(answer)).toString());
}

describe("a reader from before what was forgotten", () => {
  test.each<[string, (nth: number) => Partial<DeploymentRow>]>([
    ["demands without a row", (nth) => ({ package_version: `${nth}` })],
    ["owners without a row", (nth) => ({ tenant: `t${nth}`, address: "n" })],
    [
      "nodes that lost a row",
      (nth) => ({ address: `n${nth}`, skipped: PROBLEM, isHidden: true as const }),
    ],
  ])("reads a full list: %s", (_, changes) => {
    const cache = createDeploymentCache({ emptyMax: 2 });
    cache.put(row("a", changes(0)));
    const { revision } = read(cache);
    for (let nth = 0; nth < 3; nth++) {
      if (nth > 0) cache.put(row("a", changes(nth)));
      cache.remove("a");
    }
    expect(read(cache, revision).answer).not.toBe("full");
    for (let nth = 3; nth < 8; nth++) {
      cache.put(row("a", changes(nth)));
      cache.remove("a");
    }
    expect(read(cache, revision).answer).toBe("full");
  });

  test("goes on with a list that it began to read after that", () => {
    const cache = createDeploymentCache({ emptyMax: 2 });
    for (const id of ["a", "b", "c"]) cache.put(row(id, { address: "me" }));
    for (let nth = 0; nth < 8; nth++) {
      cache.put(row("d", { package_version: `${nth}` }));
      cache.remove("d");
    }
    const ids: string[] = [];
    let answer = read(cache, undefined, { answerBytesMax: 1 });
    for (let part = 0; part < 20; part++) {
      ids.push(...answer.items.map(({ id }) => id));
      if (!answer.more) break;
      answer = read(cache, answer.revision, { answerBytesMax: 1 });
    }
    expect(ids).toEqual(["a", "b", "c"]);
    expect(answer.more).toBeUndefined();
  });
});

test("a row is offered to others if its owner refuses it, and not if a former owner did", () => {
  const cache = createDeploymentCache();
  cache.put(row("a", { address: "n" }));
  const others = (by: string) => read(cache, undefined, { refused: { a: [by] } }).subset?.others;
  expect(others("former")).toEqual([]);
  expect(others("n")).toMatchObject([{ id: "a" }]);
});

test("rows that a reader could take over count for the length of the answer; the oldest come first", () => {
  const cache = createDeploymentCache();
  for (let nth = 500; nth > 0; nth--)
    cache.put(row(`row-${nth}`, { address: "drains", created_at: new Date(nth * 1_000) }));
  const options = { owners: ["drains"], answerBytesMax: 32_768 };
  const whole = read(cache, undefined, options);
  const unchanged = read(cache, whole.revision, options);
  for (const { subset } of [whole, unchanged]) {
    const others = subset!.others!.map(({ id }) => id);
    expect(JSON.stringify(subset!.others).length).toBeLessThanOrEqual(32_768);
    expect(others.length).toBeGreaterThan(50);
    expect(others).toEqual(others.map((_, at) => `row-${at + 1}`));
  }
});
