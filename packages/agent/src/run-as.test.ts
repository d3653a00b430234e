import { expect, test } from "vitest";
import { parseRunAs } from "./run-as.ts";

const NAMES = {
  users: [
    ["root", "x", "0", "0"],
    ["app", "x", "1001", "1002"],
  ],
  groups: [
    ["root", "x", "0"],
    ["apps", "x", "1003"],
  ],
};

test.each([
  ["app", { kind: "one", uid: 1001, gid: 1002 }],
  ["app:apps", { kind: "one", uid: 1001, gid: 1003 }],
  ["1001", { kind: "one", uid: 1001, gid: 1002 }],
  ["5000", { kind: "one", uid: 5000, gid: 5000 }],
  ["5000:6000", { kind: "one", uid: 5000, gid: 6000 }],
  ["per-deployment:70000-70999", { kind: "each", firstUid: 70_000, lastUid: 70_999, gid: 70_000 }],
  ["per-deployment:7-7:apps", { kind: "each", firstUid: 7, lastUid: 7, gid: 1003 }],
])("%s is read", (text, runAs) => {
  expect(parseRunAs(text, NAMES)).toEqual(runAs);
});

test.each([
  "",
  "nobody-here",
  "app:no-such-group",
  "root",
  "0",
  "app:root",
  "app:0",
  "a:b:c",
  "per-deployment:0-10",
  "per-deployment:10-9",
  "per-deployment:1-4294967295",
  "per-deployment:5",
  "4294967295",
])("%j is refused", (text) => {
  expect(parseRunAs(text, NAMES)).toEqual({ problem: expect.any(String) });
});
