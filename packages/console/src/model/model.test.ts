import { describe, expect, test } from "vitest";
import { eventHref, eventTone } from "./event.ts";
import { shortId } from "./ids.ts";
import { differences } from "./revision.ts";
import { changesOf, EMPTY_DRAFT, isEditable, pairsOf, problemOf } from "./spec.ts";
import { duration, relative } from "./time.ts";

test.each([
  [-400, "now"],
  [1_500, "now"],
  [-12_000, "12 s ago"],
  [-59_400, "59 s ago"],
  [-61_000, "1 min ago"],
  [-3_600_000, "1 h ago"],
  [-49 * 3_600_000, "2 d ago"],
  [13_000, "in 13 s"],
])("%d ms is %s", (ms, text) => {
  expect(relative(ms)).toBe(text);
});

test.each([
  [0, "0 ms"],
  [2.54, "2.5 ms"],
  [12.4, "12 ms"],
  [1_240, "1.24 s"],
  [59_900, "59.9 s"],
  [125_000, "2 min 5 s"],
  [3_600_000 * 3 + 600_000, "3 h 10 min"],
])("%d ms lasts %s", (ms, text) => {
  expect(duration(ms)).toBe(text);
});

test.each([
  ["018f4e1a-0000-7000-8000-0000000000ab", "…000000ab"],
  ["eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "eip155:1:0x5290…9ee7"],
  ["91MMfMDzv9UmSsY6eKHKR7aUwVJqjHndAun9f2pp7Ccv", "91MMfMDz…7Ccv"],
  ["i-5c8a82c63f4f", "i-5c8a82c63f4f"],
])("%s is short as %s", (id, short) => {
  expect(shortId(id)).toBe(short);
});

describe("a specification in a form", () => {
  const draft = { ...EMPTY_DRAFT, name: "web", command: "run", env: "A=1\n\nB=x=y" };

  test("only what was changed is sent", () => {
    expect(changesOf(draft)).toEqual({ name: "web", command: "run", env: { A: "1", B: "x=y" } });
    expect(changesOf({ ...draft, lost_after_s: "40", args: "a b\nc" }, draft)).toEqual({
      lost_after_ms: 40_000,
      args: ["a b", "c"],
    });
    expect(changesOf({ ...draft, env: "" }, draft)).toEqual({ env: {} });
  });

  test("an invalid draft has a problem", () => {
    expect(problemOf(draft)).toBeUndefined();
    expect(problemOf(EMPTY_DRAFT)).toContain("a package or a command");
    expect(problemOf(draft, { needsTenant: true })).toContain("the tenant");
    expect(problemOf({ ...draft, tenant: "blue" }, { needsTenant: true })).toBeUndefined();
    expect(changesOf({ ...draft, tenant: "blue" }, draft)).toEqual({ tenant: "blue" });
    expect(problemOf({ ...draft, env: "NOVALUE" })).toContain("NAME=value");
    expect(problemOf({ ...draft, lost_after_s: "soon" })).toContain("seconds");
  });

  test("values with line breaks are left to other tools", () => {
    expect(isEditable({ args: ["a"], env: { A: "1" } })).toBe(true);
    expect(isEditable({ args: [], env: { A: "1\n2" } })).toBe(false);
    expect(pairsOf("A=\nB=2")).toEqual({ A: "", B: "2" });
  });

  test("a reference to a secret is a line of its own form", () => {
    const env = { A: "1", PASSWORD: { secret: "db" } };
    expect(isEditable({ args: [], env })).toBe(true);
    const text = 'A=1\nPASSWORD={"secret":"db"}';
    expect(changesOf({ ...EMPTY_DRAFT, env: text })).toEqual({ env });
    expect(isEditable({ args: [], env: { A: '{"secret":"db"}' } })).toBe(false);
  });
});

test("differences of two specifications are listed by field and variable", () => {
  const before = {
    package_name: "web",
    package_version: "1",
    command: "",
    args: [],
    env: { A: "1", B: "2" },
    selector: {},
    lost_after_ms: 0,
    type: "deployment",
  };
  const after = {
    ...before,
    package_version: "2",
    env: { A: "1", C: "3" },
    selector: { tier: "main" },
  };
  expect(differences(before, after)).toEqual([
    { name: "version", from: "1", to: "2" },
    { name: "env B", from: "2", to: undefined },
    { name: "env C", from: undefined, to: "3" },
    { name: "label tier", from: undefined, to: "main" },
  ]);
});

test("an event has a link to its subject and a tone", () => {
  expect(eventTone({ event: "node.lost" })).toBe("bad");
  expect(eventTone({ event: "brake.engaged" })).toBe("bad");
  expect(eventTone({ event: "brake.released" })).toBe("good");
  expect(eventTone({ event: "something.new" })).toBe("idle");
  expect(eventHref({ event: "deployment.claimed", subject: "a/b" })).toBe("/deployments/a%2Fb");
  expect(eventHref({ event: "deployment.deleted", subject: "a" })).toBeUndefined();
  expect(eventHref({ event: "lease.taken-over", subject: "eip155:1:0x1" })).toBe(
    "/signers/eip155%3A1%3A0x1",
  );
});
