import { challengeText, encodeBase58 } from "@tenure/protocol";
import { createNodeKey } from "@tenure/testing/fleet/raw-node";
import { describe, expect, test } from "vitest";
import { createManualClock } from "../../testing/manual-clock.ts";
import { systemRandom } from "../kernel/random.ts";
import { createChallenge } from "./challenge.ts";

describe("a challenge", () => {
  const key = createNodeKey();
  const bootId = "0190a000-0000-7000-8000-000000000000";
  function meet() {
    const clock = createManualClock();
    const challenge = createChallenge({ serverId: "a", clock, random: systemRandom });
    const text = challengeText({
      server_id: "a",
      nonce: challenge.nonce,
      address: key.address,
      boot_id: bootId,
    });
    return { clock, challenge, reply: { address: key.address, bootId, signature: key.sign(text) } };
  }

  test("a challenge accepts a signature by the key of the address", () => {
    const { challenge, reply } = meet();
    expect(challenge.answer(reply)).toBe(true);
  });

  test.each([0x00, 0x80])("a challenge rejects a point of small order (sign %d)", (sign) => {
    const { challenge } = meet();
    const point = Buffer.alloc(32);
    point[0] = 1;
    point[31] = sign;
    const signature = Buffer.concat([point, Buffer.alloc(32)]).toString("base64");
    expect(challenge.answer({ address: encodeBase58(point), bootId, signature })).toBe(false);
  });

  test("a challenge accepts one signature only", () => {
    const { challenge, reply } = meet();
    expect(challenge.answer(reply)).toBe(true);
    expect(challenge.answer(reply)).toBe(false);
  });

  test("a wrong signature uses up the challenge", () => {
    const { challenge, reply } = meet();
    expect(challenge.answer({ ...reply, signature: key.sign("something else") })).toBe(false);
    expect(challenge.answer(reply)).toBe(false);
  });

  test("a signature after ten seconds is rejected", () => {
    const inTime = meet();
    inTime.clock.advance(10_000);
    expect(inTime.challenge.answer(inTime.reply)).toBe(true);
    const late = meet();
    late.clock.advance(10_001);
    expect(late.challenge.answer(late.reply)).toBe(false);
  });

  test("a challenge is never repeated", () => {
    expect(new Set(Array.from({ length: 1_000 }, () => meet().challenge.nonce)).size).toBe(1_000);
  });

  test.each([
    ["another boot", { bootId: "0190a000-0000-7000-8000-000000000001" }],
    ["another address", { address: createNodeKey().address }],
    ["32 bytes that are no key", { address: "1".repeat(32) }],
    ["no signature", { signature: "" }],
    ["a signature of another length", { signature: Buffer.alloc(63).toString("base64") }],
  ])("a challenge rejects %s", (_, change) => {
    const { challenge, reply } = meet();
    expect(challenge.answer({ ...reply, ...change })).toBe(false);
  });
});
