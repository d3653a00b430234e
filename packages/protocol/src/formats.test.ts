import { describe, expect, test } from "vitest";
import type * as z from "zod";
import { encodeBase58 } from "./base58.ts";
import {
  AttemptId,
  ClientId,
  cutText,
  DurationMs,
  Generation,
  InstanceId,
  JSON_DEPTH_MAX,
  Json,
  Labels,
  NodeAddress,
  Nonce,
  normalizeSigner,
  SessionId,
  Signer,
  Timestamp,
  text,
  Uuid,
} from "./formats.ts";

const accepts = (schema: z.ZodType, value: unknown) => schema.safeParse(value).success;

const MIXED = "0xAb5801a7D398351b8bE11C439e05C5B3259aeC9B";
const LOWER = MIXED.toLowerCase();

describe("numbers", () => {
  test("are exact integers from 0 on", () => {
    expect([0, 1, 2 ** 53 - 1].every((value) => accepts(Nonce, value))).toBe(true);
  });

  test.each([
    2 ** 53,
    -1,
    1.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    "1",
    null,
    1n,
  ])("%s is no nonce", (value) => expect(accepts(Nonce, value)).toBe(false));

  test("a number too large for a double is refused, not rounded", () => {
    expect(accepts(Generation, JSON.parse("9007199254740993"))).toBe(false);
  });

  test("attempts count from 1", () => {
    expect(accepts(AttemptId, 1)).toBe(true);
    expect(accepts(AttemptId, 0)).toBe(false);
  });

  test("a duration fits a timer", () => {
    expect(accepts(DurationMs, 2 ** 31 - 1)).toBe(true);
    expect(accepts(DurationMs, 2 ** 31)).toBe(false);
  });
});

describe("times", () => {
  test("are what a Date writes", () => {
    expect(accepts(Timestamp, new Date(0).toISOString())).toBe(true);
  });

  test.each([
    "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00.000+00:00",
    "2026-01-31 12:00:00.000Z",
    "2026-02-30T12:00:00.000Z",
    1_769_860_800_000,
  ])("%s is none", (value) => expect(accepts(Timestamp, value)).toBe(false));
});

describe("ids", () => {
  test("a UUID is lower-cased, so that it names one Redis key", () => {
    expect(Uuid.parse("0190F3A8-7B7E-7C3D-9A55-2F1B3C4D5E6F")).toBe(
      "0190f3a8-7b7e-7c3d-9a55-2f1b3c4d5e6f",
    );
    expect(accepts(Uuid, "0190f3a8-7b7e-7c3d-9a55")).toBe(false);
  });

  test("a session id is 128 bits in hex", () => {
    expect(accepts(SessionId, "0123456789abcdef0123456789abcdef")).toBe(true);
    expect(accepts(SessionId, "0123456789ABCDEF0123456789ABCDEF")).toBe(false);
    expect(accepts(SessionId, "0123456789abcdef")).toBe(false);
  });

  test("a client's id may hold what URLs and package names hold", () => {
    expect(accepts(ClientId, "@scope/name:1.2.3-rc_1")).toBe(true);
    expect(accepts(ClientId, "a".repeat(128))).toBe(true);
  });

  test.each([
    "",
    "a".repeat(129),
    "{slot}",
    "a}",
    "a b",
    "a\n",
    "ü",
    "a\0",
  ])("%j is no client's id", (value) => expect(accepts(ClientId, value)).toBe(false));

  test("an instance id stands in a path and in a hash tag", () => {
    expect(accepts(InstanceId, "host-1:7070@eu.west")).toBe(true);
    expect(accepts(InstanceId, "a/b")).toBe(false);
    expect(accepts(InstanceId, "{a}")).toBe(false);
  });
});

describe("a node's address", () => {
  test("is any 32 bytes in base58", () => {
    for (const byte of [0, 1, 255]) {
      expect(accepts(NodeAddress, encodeBase58(new Uint8Array(32).fill(byte)))).toBe(true);
    }
  });

  test.each([
    ["31 bytes", encodeBase58(new Uint8Array(31).fill(255))],
    ["33 bytes", encodeBase58(new Uint8Array(33).fill(255))],
    ["letters base58 has not got", "0".repeat(43)],
    ["nothing", ""],
    ["much", "1".repeat(10_000)],
  ])("is not %s", (_, value) => expect(accepts(NodeAddress, value)).toBe(false));
});

describe("a signer", () => {
  test("has one spelling, however its address was written", () => {
    expect(Signer.parse(`eip155:1:${MIXED}`)).toBe(`eip155:1:${LOWER}`);
    expect(Signer.parse(`eip155:1:${MIXED.toUpperCase()}`)).toBe(`eip155:1:${LOWER}`);
    expect(Signer.parse(MIXED)).toBe(LOWER);
  });

  test.each([
    ["names that differ by case", "solana:mainnet:7S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv"],
    ["a longer hex number", `starknet:${MIXED}Ab`],
    ["hex inside a word", `a${MIXED}`],
    ["the rest of the text", "EIP155:Main.Net"],
  ])("keeps %s", (_, signer) => expect(normalizeSigner(signer)).toBe(signer));

  test("lower-cases the address and leaves what stands around it", () => {
    expect(normalizeSigner(`Chain-A:${MIXED}:Key_B`)).toBe(`Chain-A:${LOWER}:Key_B`);
  });

  test.each([
    "",
    "a".repeat(201),
    "a".repeat(10_000),
    "eip155/1",
    "{a}",
    "a b",
    "a@b",
  ])("is not %j", (value) => expect(accepts(Signer, value)).toBe(false));
});

describe("text and JSON", () => {
  test("text is what every store takes", () => {
    expect(accepts(text(10), "plain 😀")).toBe(true);
    expect(accepts(text(10), "a\0b")).toBe(false);
    expect(accepts(text(10), "half \ud83d")).toBe(false);
    expect(accepts(text(10), "a".repeat(11))).toBe(false);
  });

  test("JSON may be null or false, but not absent", () => {
    expect([null, false, 0, "", [], {}].every((value) => accepts(Json, value))).toBe(true);
    expect(accepts(Json, undefined)).toBe(false);
  });

  test("JSON that would overflow the stack of its writer is refused", () => {
    const nested = (depth: number) => JSON.parse("[".repeat(depth) + "]".repeat(depth));
    expect(accepts(Json, nested(JSON_DEPTH_MAX))).toBe(true);
    expect(accepts(Json, nested(JSON_DEPTH_MAX + 1))).toBe(false);
    expect(accepts(Json, nested(300_000))).toBe(false);
  });

  test("a wide value is no deep one", () => {
    expect(accepts(Json, { rows: new Array(100_000).fill({ a: 1 }) })).toBe(true);
  });

  test("a label named __proto__ changes no prototype", () => {
    const labels = Labels.parse(JSON.parse('{"__proto__":{"admin":"yes"},"zone":"eu"}'));
    expect(labels).toEqual({ zone: "eu" });
    expect(labels.admin).toBeUndefined();
  });
});

test("a text is cut between characters", () => {
  expect(cutText("ab😀", 4)).toBe("ab😀");
  expect(cutText("ab😀c", 4)).toBe("ab😀");
  expect(cutText("ab😀c", 3)).toBe("ab");
  expect(cutText("abc", 2)).toBe("ab");
});
