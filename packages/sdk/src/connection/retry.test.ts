import { TenureError } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { BACKOFF, type LossKind, lossOfClose, lossOfHandshake, planRetry } from "./retry.ts";

const fresh = { failures: 0, readyForMs: undefined, askedMs: 0 };
const loss = (kind: LossKind) => ({ kind, reason: "because" });
const almostOne = 1 - Number.EPSILON;

describe("the wait before a retry", () => {
  test("grows from 100 ms to 10 s, anywhere between nothing and the limit", () => {
    const limits: number[] = [];
    let failures = 0;
    for (let attempt = 0; attempt < 12; attempt++) {
      const least = planRetry(loss("unreachable"), { ...fresh, failures, random: 0 });
      const half = planRetry(loss("unreachable"), { ...fresh, failures, random: 0.5 });
      const most = planRetry(loss("unreachable"), { ...fresh, failures, random: almostOne });
      expect(least.waitMs).toBe(0);
      expect(half.waitMs).toBeCloseTo(most.waitMs / 2);
      limits.push(Math.round(most.waitMs));
      failures = most.failures;
    }

    expect(limits).toEqual([
      100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000, 10_000, 10_000,
    ]);
  });

  test("does not overflow after days of failures", () => {
    const plan = planRetry(loss("lost"), { ...fresh, failures: 100_000, random: almostOne });

    expect(plan.waitMs).toBeCloseTo(10_000);
  });

  test("starts again after a connection that held, and not after one that did not", () => {
    const past = { failures: 6, askedMs: 0, random: almostOne };
    const brief = planRetry(loss("lost"), { ...past, readyForMs: BACKOFF.stableMs - 1 });
    const held = planRetry(loss("lost"), { ...past, readyForMs: BACKOFF.stableMs });

    expect(brief.waitMs).toBeCloseTo(6_400);
    expect(held.waitMs).toBeCloseTo(100);
  });

  test.for([
    "unauthenticated",
    "forbidden",
    "replaced",
    "refused",
  ] as const)("is between 15 and 30 s when %s, however early, and leaves the back-off alone", (kind) => {
    const past = { ...fresh, failures: 3 };

    expect(planRetry(loss(kind), { ...past, random: 0 }).waitMs).toBe(15_000);
    expect(planRetry(loss(kind), { ...past, random: almostOne }).waitMs).toBeCloseTo(30_000);
    expect(planRetry(loss(kind), { ...past, random: 0 }).failures).toBe(3);
  });

  test("is short when a working instance stops, and leaves the back-off alone", () => {
    const past = { failures: 5, readyForMs: 1_000, askedMs: 0, random: almostOne };

    expect(planRetry(loss("stopping"), past)).toEqual({
      waitMs: expect.closeTo(100),
      failures: 5,
    });
  });

  test("grows when every instance stops before it is ready", () => {
    const past = { failures: 5, readyForMs: undefined, askedMs: 0, random: almostOne };

    expect(planRetry(loss("stopping"), past)).toEqual({
      waitMs: expect.closeTo(3_200),
      failures: 6,
    });
  });

  test("is at least as long as the server asks for, and jittered after it", () => {
    const past = { failures: 0, readyForMs: 60_000, askedMs: 500 };

    expect(planRetry(loss("stopping"), { ...past, random: 0 }).waitMs).toBe(500);
    expect(planRetry(loss("stopping"), { ...past, random: almostOne }).waitMs).toBeCloseTo(1_000);
  });
});

describe("a close", () => {
  test.for([
    [1006, "lost", undefined],
    [1000, "lost", undefined],
    [1012, "stopping", undefined],
    [1013, "too_slow", undefined],
    [1009, "frame_too_large", "INVALID_MESSAGE"],
    [4400, "bad_frames", "INVALID_MESSAGE"],
    [4401, "unauthenticated", "UNAUTHENTICATED"],
    [4403, "forbidden", "FORBIDDEN"],
    [4409, "replaced", "CONFLICT"],
  ] as const)("%i is %s", ([code, kind, errorCode]) => {
    const seen = lossOfClose({ code, reason: "" }, { opened: true });

    expect(seen).toMatchObject({ kind, code });
    expect(seen.error?.code).toBe(errorCode);
    expect(seen.reason).not.toBe("");
  });

  test("after an error of the server has that error", () => {
    const error = new TenureError("NODE_ADDRESS_IN_USE", { address: "another" });

    expect(lossOfClose({ code: 4409, reason: "" }, { opened: true, error }).error).toBe(error);
  });

  test("of the network is not explained by an older error", () => {
    const error = new TenureError("RATE_LIMITED", { retry_after_ms: 1 });

    expect(lossOfClose({ code: 1006, reason: "" }, { opened: true, error })).toEqual({
      kind: "lost",
      reason: "closed with 1006",
      code: 1006,
    });
  });

  test("by an HTTP status that refuses the upgrade has the meaning of a code", () => {
    const answered = (status: number) =>
      lossOfClose({ code: 1006, reason: "", status }, { opened: false }).kind;

    expect([401, 403, 404, 503].map(answered)).toEqual([
      "unauthenticated",
      "forbidden",
      "unreachable",
      "unreachable",
    ]);
  });
});

describe("a failed handshake", () => {
  test.for([
    [new TenureError("UNAUTHENTICATED", { reason: "" }), "unauthenticated"],
    [new TenureError("FORBIDDEN", { reason: "" }), "forbidden"],
    [new TenureError("NODE_ADDRESS_IN_USE", { address: "a" }), "replaced"],
    [new TenureError("UNSUPPORTED_VERSION", { offered: 1, supported: 2 }), "refused"],
    [new TenureError("DEPENDENCY_DOWN", { dependency: "Postgres" }), "handshake"],
    [new TenureError("INTERNAL", {}), "handshake"],
    [new Error("the key is locked"), "handshake"],
  ] as const)("%s is %s", ([error, kind]) => {
    const seen = lossOfHandshake(error);

    expect(seen.kind).toBe(kind);
    expect(seen.error).toBeInstanceOf(TenureError);
  });
});
