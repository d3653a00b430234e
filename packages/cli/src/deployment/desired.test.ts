import type { DeploymentView } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { changeFor, needsNewProcess, parseDesired } from "./desired.ts";

const present: DeploymentView = {
  id: "0190f3a8-7b7e-7c3d-9a55-2f1b3c4d5e6f",
  name: "web",
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  args: [],
  env: { A: "1", B: "2" },
  type: "deployment",
  address: "",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 0,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
  status: [],
};

describe("a file", () => {
  test.each([
    ["a list", "- {name: a, package_name: x}\n- {name: b, package_name: x}"],
    ["deployments", "deployments:\n  - {name: a, package_name: x}\n  - {name: b, package_name: x}"],
    ["documents", "name: a\npackage_name: x\n---\nname: b\npackage_name: x\n"],
    ["JSON", '[{"name": "a", "package_name": "x"}, {"name": "b", "package_name": "x"}]'],
  ])("may hold %s", (_, text) => {
    expect(parseDesired(text).map(({ name }) => name)).toEqual(["a", "b"]);
  });

  test.each([
    ["a mistyped field", "- {name: a, package: x}", /a: .*package/],
    ["no name", "- {package_name: x}", /deployment 1: name/],
    [
      "one name twice",
      "[{name: a, package_name: x}, {name: a, package_name: y}]",
      /two deployments named a/,
    ],
    ["no YAML", "a: [", /./],
    ["a number as a variable", "- {name: a, package_name: x, env: {A: 1}}", /env\.A/],
  ])("with %s is refused", (_, text, message) => {
    expect(() => parseDesired(text)).toThrow(message);
  });
});

describe("what has to be done", () => {
  const change = (fields: object, before: DeploymentView | undefined = present) =>
    changeFor({ name: "web", ...fields }, before);

  test("nothing, when the file says what is; the order of fields does not matter", () => {
    expect(change({ package_version: "1.0.0", env: { B: "2", A: "1" } }).action).toBe("none");
    expect(change({ pin: null }).action).toBe("none");
  });

  test("only what differs", () => {
    const found = change({ package_name: "web", package_version: "2.0.0" });
    expect(found).toMatchObject({ action: "update", fields: { package_version: "2.0.0" } });
    expect(Object.keys(found.fields)).toEqual(["package_version"]);
    expect(needsNewProcess(found)).toBe(true);
    expect(needsNewProcess(change({ lost_after_ms: 5 }))).toBe(false);
  });

  test("a pin that was set by hand stays when the file does not speak of it", () => {
    const pinned = { ...present, selector: { zone: "x", address: "n" } };
    expect(change({ selector: { zone: "x" } }, pinned).action).toBe("none");
    expect(change({ selector: { zone: "y" } }, pinned).fields).toEqual({
      selector: { zone: "y", address: "n" },
    });
    expect(change({ pin: null }, pinned).fields).toEqual({ pin: null });
  });

  test("a new one is created", () => {
    const desired = { name: "new", package_name: "x", package_version: "1.0.0" };
    expect(changeFor(desired, undefined).action).toBe("create");
    for (const package_version of [undefined, "latest", "^1.0.0", "1"])
      expect(() => changeFor({ ...desired, package_version }, undefined)).toThrow(
        "new: package_version: must be an exact version such as 1.4.2",
      );
    expect(() => changeFor({ name: "new" }, undefined)).toThrow("new: needs a package_name");
  });
});
