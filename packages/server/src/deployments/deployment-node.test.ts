import { expect, test } from "vitest";
import { profileOf } from "./cache/list-delta.ts";
import { type DeploymentNode, readerOf } from "./deployment-node.ts";

const node = (snapshot: Partial<DeploymentNode["snapshot"]> = {}): DeploymentNode => ({
  ...{ nodeId: "n", epoch: 1, isNodeUnit: true, link: { send() {} } },
  snapshot: {
    ...{ labels: {}, trusted_package_regexp: "", custom_command: false, tags: {} },
    ...{ claim_policy: "deployment_count", ...snapshot },
  },
});

test("a node keeps its reader while it is described by the same, and gets another when it is not", () => {
  const before = node();
  const reader = readerOf(before);
  expect(readerOf({ ...before, snapshot: { ...before.snapshot } })).toBe(reader);
  for (const change of [
    ...[{ labels: { zone: "b" } }, { trusted_package_regexp: "x" }, { custom_command: true }],
    ...[{ tags: { node_unit: true } }, { claim_policy: "none" }, { tenants: ["acme"] }],
  ]) {
    const changed = readerOf({ ...before, snapshot: { ...before.snapshot, ...change } });
    expect(changed).toMatchObject(change);
  }
  const trusting = { ...before, snapshot: { ...before.snapshot, custom_command: true } };
  expect(profileOf(readerOf(trusting))).not.toBe(profileOf(reader));
});
