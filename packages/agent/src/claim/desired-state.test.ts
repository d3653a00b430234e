import type { ListedDeployment } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import { describe, expect, test } from "vitest";
import { wantedHere } from "./desired-state.ts";

const me = { address: "a", labels: {}, trusted_package_regexp: "web@.*", custom_command: false };
let made = 0;
const row = (changes: Partial<ListedDeployment> = {}): ListedDeployment => ({
  id: `00000000-0000-4000-8000-${String(++made).padStart(12, "0")}`,
  name: `d${made}`,
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  type: "deployment",
  address: "a",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 1,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
const modeOf = (one: ListedDeployment) => wantedHere([one], me, matchWhole)[0]?.mode;

describe("what a node does about a row", () => {
  test.each([
    ["its own runs", {}, "run"],
    ["its own, while the next node installs", { moving_to: "b", move_state: "installing" }, "run"],
    ["its own, once the next node is ready", { moving_to: "b", move_state: "ready" }, "hold"],
    ["its own, stopped for the next node", { moving_to: "b", move_state: "stopped" }, "hold"],
    ["its own, pinned to another node", { selector: { address: "b" } }, "run"],
    [
      "its own, pinned to another node that is ready",
      { selector: { address: "b" }, moving_to: "b", move_state: "ready" },
      "hold",
    ],
    ["one it takes over", { address: "b", moving_to: "a", move_state: "installing" }, "prepare"],
    ["one it takes over now", { address: "b", moving_to: "a", move_state: "stopped" }, "prepare"],
    ["another's", { address: "b" }, undefined],
    ["a disabled one", { enabled: false }, undefined],
    ["R7, R12: a daemon, whatever its address", { type: "daemon", address: "b" }, "run"],
    ["R11: one of unknown type", { type: "cron" }, undefined],
  ] as const)("%s", (_, changes, mode) => {
    expect(modeOf(row(changes))).toBe(mode);
    expect(wantedHere([row(changes)], me, matchWhole)[0]?.refused ?? []).toEqual([]);
  });

  test("what it may not run is named with the reason, also one it would take over", () => {
    const evil = { package_name: "evil" };
    const rows = [row(evil), row({ ...evil, address: "b", moving_to: "a" })];
    const refused = wantedHere(rows, me, matchWhole).map((wanted) => wanted.refused);
    expect(refused).toEqual([["package_untrusted"], ["package_untrusted"]]);
  });

  test("env that loads code is refused by the env itself, whatever the server says of it", () => {
    const env = { env: { LD_PRELOAD: "/tmp/x.so" }, loader_env: [] };
    const rows = [row(env), row({ ...env, type: "daemon" }), row({ ...env, moving_to: "a" })];
    for (const wanted of wantedHere(rows, me, matchWhole))
      expect(wanted.refused).toEqual(["env_not_allowed"]);
  });
});
