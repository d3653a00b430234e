import { describe, expect, test } from "vitest";
import {
  isExactVersion,
  type NodeTraits,
  type RunSpec,
  selects,
  unfitness as unfitnessBy,
} from "./eligibility.ts";
import { matchWhole } from "./pattern.ts";

const unfitness = (one: RunSpec, on: NodeTraits) => unfitnessBy(one, on, matchWhole);

const node: NodeTraits = {
  address: "A".repeat(40),
  labels: { zone: "x", disk: "ssd" },
  trusted_package_regexp: "@acme/.+@.+|left-pad@1\\.3\\.0",
  custom_command: false,
};
const spec: RunSpec = {
  selector: {},
  package_name: "@acme/web",
  package_version: "1.2.3",
  command: "",
};

describe("a node may run a deployment", () => {
  test.each([
    ["of a package it trusts", {}],
    ["whose selector its labels answer", { selector: { zone: "x" } }],
    ["pinned to its address", { selector: { address: node.address } }],
  ])("%s", (_, changes) => {
    expect(unfitness({ ...spec, ...changes }, node)).toEqual([]);
  });

  test("with a command, when it allows commands", () => {
    const custom = { ...spec, package_name: "", package_version: "", command: "node web.js" };
    expect(unfitness(custom, { ...node, custom_command: true })).toEqual([]);
    expect(unfitness(custom, node)).toEqual(["command_not_allowed"]);
  });

  test("with env that loads code, when it allows commands", () => {
    for (const env of [{ env: { LD_PRELOAD: "x" } }, { loader_env: ["LD_PRELOAD"] }]) {
      expect(unfitness({ ...spec, ...env }, { ...node, custom_command: true })).toEqual([]);
      expect(unfitness({ ...spec, ...env }, node)).toEqual(["env_not_allowed"]);
    }
    expect(unfitness({ ...spec, env: { NODE_ENV: "production" } }, node)).toEqual([]);
  });
});

test("a node runs a deployment with secrets if its tag shows that it takes them", () => {
  for (const uses of [{ env: { PASSWORD: { secret: "db" } } }, { uses_secrets: true }]) {
    const takes = { ...node, tags: { node_unit_secrets: true } };
    expect(unfitness({ ...spec, ...uses }, takes)).toEqual([]);
    for (const tags of [undefined, {}, { node_unit_secrets: "true" }])
      expect(unfitness({ ...spec, ...uses }, { ...node, tags })).toEqual(["secrets_not_supported"]);
  }
  expect(unfitness({ ...spec, env: { A: "{}" }, uses_secrets: true }, node)).toEqual([]);
});

describe("a node may not run a deployment", () => {
  test.each([
    ["of a label it lacks", { selector: { gpu: "yes" } }, "selector_mismatch"],
    ["of another value", { selector: { zone: "y" } }, "selector_mismatch"],
    ["pinned elsewhere", { selector: { address: "B".repeat(40) } }, "selector_mismatch"],
    ["asking for a label of Object", { selector: { constructor: "x" } }, "selector_mismatch"],
    ["of a package it does not trust", { package_name: "evil" }, "package_untrusted"],
    ["whose name only begins well", { package_name: "x/@acme/web" }, "package_untrusted"],
    [
      "of a package trusted in another version",
      { package_name: "left-pad", package_version: "1.3.1" },
      "package_untrusted",
    ],
    ["with a range as version", { package_version: "^1.2.3" }, "version_not_exact"],
    ["with nothing in it", { package_name: "" }, "nothing_to_run"],
  ])("%s", (_, changes, reason) => {
    expect(unfitness({ ...spec, ...changes }, node)).toEqual([reason]);
  });

  test("when it trusts nothing, or its pattern is none", () => {
    expect(unfitness(spec, { ...node, trusted_package_regexp: "" })).toEqual(["package_untrusted"]);
    expect(unfitness(spec, { ...node, trusted_package_regexp: "(" })).toEqual([
      "package_untrusted",
    ]);
  });
});

test("an alternative in a pattern must match the whole name too", () => {
  expect(
    unfitness({ ...spec, package_name: "evil-left-pad", package_version: "1.3.0" }, node),
  ).toEqual(["package_untrusted"]);
});

test("R7: an empty selector selects every node", () => {
  expect(selects({}, { address: "x", labels: {} })).toBe(true);
});

test("only plain versions are exact", () => {
  const good = ["1.2.3", "0.0.0", "1.2.3-beta.1", "1.2.3+build.5", "1.2.3-rc.1+b"];
  const bad = [
    "",
    "latest",
    "1.2",
    "v1.2.3",
    "^1.2.3",
    "npm:other@1",
    "1.2.3 ",
    "git+ssh://x",
    "../x",
    "1.x.0",
  ];
  expect(good.filter((version) => !isExactVersion(version))).toEqual([]);
  expect(bad.filter(isExactVersion)).toEqual([]);
});
