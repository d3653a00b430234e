import { describe, expect, test } from "vitest";
import { ownerOf } from "./signer-routing.ts";

const signers = Array.from(
  { length: 3_000 },
  (_, k) => `eip155:1:0x${k.toString(16).padStart(40, "0")}`,
);
const three = ["i-a1", "i-a2", "i-a3"];

describe("the owner of a signer", () => {
  test("the owner of a signer is the same in every order of the list", () => {
    for (const signer of signers.slice(0, 100))
      expect(ownerOf(signer, three)).toBe(ownerOf(signer, three.toReversed()));
  });

  test("signers are spread evenly over the instances", () => {
    for (const instance of three) {
      const own = signers.filter((signer) => ownerOf(signer, three) === instance).length;
      expect(own / signers.length).toBeCloseTo(1 / 3, 1);
    }
  });

  test("an instance that leaves moves only its own signers", () => {
    const moved = signers.filter(
      (signer) => ownerOf(signer, three) !== ownerOf(signer, three.slice(0, 2)),
    );
    expect(moved).toEqual(signers.filter((signer) => ownerOf(signer, three) === "i-a3"));
  });

  test("a signer has no owner when the list is empty", () => {
    expect(ownerOf("s", [])).toBeUndefined();
  });
});
