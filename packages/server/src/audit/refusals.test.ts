import { beforeEach, describe, expect, test } from "vitest";
import { addressGroup } from "./address-group.ts";
import { type RefusalLine, Refusals } from "./refusals.ts";
import { SignInLimit } from "./sign-in-limit.ts";

let nowMs: number;
let lines: RefusalLine[];
let refusals: Refusals;
const clock = { monotonicMs: () => nowMs };
beforeEach(() => {
  nowMs = 0;
  lines = [];
  refusals = new Refusals(clock, (line) => lines.push(line));
});

const from = (address: string, token?: string) => ({
  reason: "token",
  route: "GET /api/v1/me",
  address,
  token,
});
const address = (n: number): string => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;

describe("refusals", () => {
  test("rejections are one line per address and minute, with the number of those that followed", () => {
    for (let n = 0; n < 100; n++) refusals.note(from("10.0.0.1"));
    expect(lines.map(({ count }) => count)).toEqual([1]);
    nowMs = 59_999;
    refusals.sweep();
    expect(lines).toHaveLength(1);
    nowMs = 60_000;
    refusals.sweep();
    expect(lines.map(({ count }) => count)).toEqual([1, 99]);
    nowMs = 120_000;
    refusals.sweep();
    expect([lines.length, refusals.size]).toEqual([2, 0]);
  });

  test("rejections of a token are counted together from all addresses", () => {
    for (let n = 0; n < 50; n++) refusals.note(from(address(n), "viewer"));
    expect(lines).toEqual([{ ...from(address(0), "viewer"), count: 1 }]);
  });

  test("rejections from many addresses are 100 lines a minute and one for the others, and none is lost", () => {
    for (let n = 0; n < 20_000; n++) refusals.note(from(address(n)));
    expect([lines.length, refusals.size]).toEqual([100, 10_000]);
    refusals.note(from(address(0), "viewer"));
    expect(lines.at(-1)?.token).toBe("viewer");
    nowMs = 60_000;
    refusals.sweep();
    expect(lines.at(-1)).toMatchObject({ address: "others", count: 19_900 });
    nowMs = 120_000;
    refusals.sweep();
    expect(refusals.size).toBe(0);
  });

  test("pending rejections get a line at a stop", () => {
    for (let n = 0; n < 3; n++) refusals.note(from("10.0.0.1"));
    refusals.sweep(true);
    expect(lines.map(({ count }) => count)).toEqual([1, 2]);
  });
});

describe("failed sign-ins", () => {
  test("an address has ten failed sign-ins at once and then ten a minute", () => {
    const limit = new SignInLimit(clock);
    for (let n = 0; n < 10; n++) {
      expect(limit.waitMs("10.0.0.1")).toBe(0);
      limit.failed("10.0.0.1");
    }
    expect(limit.waitMs("10.0.0.1")).toBe(6_000);
    expect(limit.waitMs("10.0.0.2")).toBe(0);
    nowMs = 6_000;
    expect(limit.waitMs("10.0.0.1")).toBe(0);
    limit.failed("10.0.0.1");
    expect(limit.waitMs("10.0.0.1")).toBe(6_000);
  });

  test("at most ten thousand addresses are counted", () => {
    const limit = new SignInLimit(clock);
    for (let n = 0; n < 20_000; n++) limit.failed(address(n));
    expect(limit.size).toBe(10_000);
  });
});

test.each([
  ["10.0.0.1", "10.0.0.1"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:db8::1", "2001:db8:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
  ["fe80::", "fe80:0:0:0::/64"],
  ["unknown", "unknown"],
])("%s counts as %s", (one, group) => {
  expect(addressGroup(one)).toBe(group);
});
