import { randomBytes } from "node:crypto";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { silentLog } from "../kernel/log.ts";
import { openKeyring } from "./key-file.ts";

const HEX = randomBytes(32).toString("hex");
const BASE64 = randomBytes(32).toString("base64");

function keyFile(text: string, mode = 0o600): string {
  const path = join(scratchDirectory("keys"), "secret.keys");
  writeFileSync(path, text, { mode });
  chmodSync(path, mode);
  return path;
}

function open(path: string) {
  const clock = createManualClock();
  return { clock, keyring: openKeyring(path, { clock, log: silentLog }) };
}

test("keys are read in hex and base64, in their order", () => {
  const { keyring } = open(keyFile(`# mine\n\n${HEX}\r\n  ${BASE64}\n`));
  const [first, second] = keyring.keys();
  expect(first?.bytes.toString("hex")).toBe(HEX);
  expect(second?.bytes.toString("base64")).toBe(BASE64);
  expect(first?.id).toMatch(/^[0-9a-f]{12}$/);
  expect(open("").keyring.keys()).toEqual([]);
});

test.each([
  ["a short key", "abcdef\n", /line 1 must be 32 bytes/],
  ["a long key", `# one\n${HEX}00\n`, /line 2 must be 32 bytes/],
  ["no key", "# nothing\n", /has no key/],
])("%s fails the start without being quoted", (_, text, problem) => {
  expect(() => open(keyFile(text))).toThrow(problem);
  expect(() => open(keyFile(text))).not.toThrow(/abcdef|# one|[0-9a-f]{32}/);
});

test("a file that every user can read, or that is not there, fails the start", () => {
  expect(() => open(keyFile(HEX, 0o644))).toThrow(/chmod 600/);
  expect(() => open("/nonexistent/keys")).toThrow(/ENOENT/);
});

test("a changed file is read again; a bad one leaves the former keys in use", async () => {
  const path = keyFile(HEX);
  const { clock, keyring } = open(path);
  const [first] = keyring.keys();
  clock.advance(1_000);
  expect(keyring.keys()).toEqual([first]);
  writeFileSync(path, `${BASE64}\n${HEX}\n`);
  clock.advance(1_000);
  expect(keyring.keys().map(({ id }) => id)).toContain(first?.id);
  expect(keyring.keys()).toHaveLength(2);
  writeFileSync(path, "half a ke");
  clock.advance(1_000);
  expect(keyring.keys()).toHaveLength(2);
  rmSync(path);
  clock.advance(1_000);
  expect(keyring.keys()).toHaveLength(2);
  writeFileSync(path, `${HEX}\n`, { mode: 0o600 });
  clock.advance(1_000);
  expect(keyring.keys()).toHaveLength(1);
});
