import { beforeAll, describe, expect, test } from "vitest";

describe("a suite that cannot begin", () => {
  beforeAll(() => {
    throw new Error("no ground to stand on");
  });
  test("never runs", () => expect(1 + 1).toBe(2));
});

test("is wrong", () => expect(1 + 1).toBe(3));
