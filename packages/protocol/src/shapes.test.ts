import { describe, expect, expectTypeOf, test } from "vitest";
import { DlqId } from "./cluster.ts";
import {
  DeploymentCreate,
  DeploymentPatch,
  type DeploymentView,
  type IDeployment,
  isDeploymentType,
  ListedDeployment,
} from "./deployment.ts";
import { LogFile } from "./log-lines.ts";
import { isNodeUnit } from "./node.ts";
import { NonceAllocate, NonceResolve, NonceUsed } from "./nonce.ts";

const id = "0190f3a8-7b7e-7c3d-9a55-2f1b3c4d5e6f";
const row = {
  id,
  name: "web",
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  type: "deployment",
  address: "",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 0,
  revision: 1,
  created_at: "2026-01-31T12:00:00.000Z",
  updated_at: "2026-01-31T12:00:00.000Z",
};

describe("deployments", () => {
  test("R10: IDeployment has the type daemon or deployment", () => {
    expectTypeOf<IDeployment["type"]>().toEqualTypeOf<"daemon" | "deployment">();
    expectTypeOf<IDeployment>().toExtend<Omit<DeploymentView, "status">>();
    expect(["daemon", "deployment"].every(isDeploymentType)).toBe(true);
    expect(["", "Daemon", "cron", "__proto__"].some(isDeploymentType)).toBe(false);
  });

  test("R11, R12: a row with a bad type or a stray address can still be read", () => {
    expect(ListedDeployment.parse({ ...row, type: "cron" }).type).toBe("cron");
    expect(ListedDeployment.parse({ ...row, type: "daemon", address: "unknown" }).address).toBe(
      "unknown",
    );
  });

  test("a new one needs something to run", () => {
    expect(DeploymentCreate.safeParse({ name: "web" }).success).toBe(false);
    expect(DeploymentCreate.safeParse({ command: "node web.js" }).success).toBe(true);
    expect(DeploymentCreate.safeParse({ package_name: "web" }).success).toBe(true);
  });

  test.each([
    ["a name with a brace", { name: "{web}" }],
    ["a variable name with =", { env: { "A=B": "1" } }],
    ["a NUL in a variable", { env: { A: "1\0" } }],
    ["a number as variable", { env: { A: 1 } }],
    ["a NUL in an argument", { args: ["a\0"] }],
    ["a negative wait", { lost_after_ms: -1 }],
    ["a pin to no address", { pin: "alpha" }],
  ])("is refused with %s", (_, change) => {
    expect(DeploymentPatch.safeParse(change).success).toBe(false);
  });

  test("a pin can be taken off again", () => {
    expect(DeploymentPatch.parse({ pin: null })).toEqual({ pin: null });
  });
});

describe("nonces", () => {
  test("at most 100 are handed out at once", () => {
    const accepts = (count: unknown) => NonceAllocate.safeParse({ request_id: "r", count }).success;
    expect([undefined, 1, 100].every(accepts)).toBe(true);
    expect([0, 101, 1.5, "1"].some(accepts)).toBe(false);
  });

  test("a hash in another spelling is the same hash", () => {
    const used = (tx_hash: string) => NonceUsed.parse({ hold_id: id, tx_hash }).tx_hash;
    expect(used("0xABCDEF")).toBe("0xabcdef");
    expect(used("5VERv8NMvzbJMEkV8xnrLkEaWRtSz9CosKDYjCJjBRnb")).toBe(
      "5VERv8NMvzbJMEkV8xnrLkEaWRtSz9CosKDYjCJjBRnb",
    );
  });

  test("an operator marks a nonce as used or free, with a reason", () => {
    expect(NonceResolve.safeParse({ status: "CONSUMED", reason: "mined" }).success).toBe(true);
    expect(NonceResolve.safeParse({ status: "HELD", reason: "mined" }).success).toBe(false);
    expect(NonceResolve.safeParse({ status: "RELEASED", reason: "" }).success).toBe(false);
  });
});

test("the tag node_unit makes a node-unit, as a word or as a flag", () => {
  expect(isNodeUnit({ node_unit: "true" }) && isNodeUnit({ node_unit: true })).toBe(true);
  expect(isNodeUnit({}) || isNodeUnit({ node_unit: "false" })).toBe(false);
});

test("a dead letter is named by its instance and its place in the stream", () => {
  expect(DlqId.safeParse("host:7070:1700000000000-0").success).toBe(true);
  expect(DlqId.safeParse("1700000000000-0").success).toBe(false);
});

test("a log file is a number, so that it cannot walk out of its directory", () => {
  expect(LogFile.safeParse(1).success).toBe(true);
  expect(LogFile.safeParse("../../etc/passwd").success).toBe(false);
});
