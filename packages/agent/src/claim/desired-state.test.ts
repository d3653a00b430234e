import type { ListedDeployment } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import { describe, expect, test } from "vitest";
import { row as anyRow } from "../../testing/rows.ts";
import { desiredState } from "./desired-state.ts";

const me = { address: "a", labels: {}, trusted_package_regexp: "web@.*", custom_command: false };
const row = (changes: Partial<ListedDeployment> = {}) =>
  anyRow({ address: "a", generation: 1, ...changes });
const modeOf = (one: ListedDeployment) => desiredState([one], me, matchWhole)[0]?.mode;

describe("the desired state", () => {
  test.each([
    ["of its own row is run", {}, "run"],
    [
      "of its own row is run while the next node installs",
      { moving_to: "b", move_state: "installing" },
      "run",
    ],
    [
      "of its own row is hold once the next node is ready",
      { moving_to: "b", move_state: "ready" },
      "hold",
    ],
    [
      "of its own row is hold after it was stopped for the next node",
      { moving_to: "b", move_state: "stopped" },
      "hold",
    ],
    ["of its own row is run if pinned to another node", { selector: { address: "b" } }, "run"],
    [
      "of its own row is hold if pinned to another node that is ready",
      { selector: { address: "b" }, moving_to: "b", move_state: "ready" },
      "hold",
    ],
    [
      "of a row it takes over is prepare",
      { address: "b", moving_to: "a", move_state: "installing" },
      "prepare",
    ],
    [
      "of a row it takes over now is prepare",
      { address: "b", moving_to: "a", move_state: "stopped" },
      "prepare",
    ],
    ["has no row of another node", { address: "b" }, undefined],
    ["has no disabled row", { enabled: false }, undefined],
    [
      "R7, R12: of a daemon is run, regardless of its address",
      { type: "daemon", address: "b" },
      "run",
    ],
    ["R11: has no row of unknown type", { type: "cron" }, undefined],
  ] as const)("%s", (_, changes, mode) => {
    expect(modeOf(row(changes))).toBe(mode);
    expect(desiredState([row(changes)], me, matchWhole)[0]?.refused ?? []).toEqual([]);
  });

  test("names the reason for a row that the node may not run, also for one it would take over", () => {
    const evil = { package_name: "evil" };
    const rows = [row(evil), row({ ...evil, address: "b", moving_to: "a" })];
    const refused = desiredState(rows, me, matchWhole).map(({ refused }) => refused);
    expect(refused).toEqual([["package_untrusted"], ["package_untrusted"]]);
  });

  test("refuses env that loads code by the env itself, regardless of the server's list", () => {
    const env = { env: { LD_PRELOAD: "/tmp/x.so" }, loader_env: [] };
    const rows = [row(env), row({ ...env, type: "daemon" }), row({ ...env, moving_to: "a" })];
    for (const { refused } of desiredState(rows, me, matchWhole))
      expect(refused).toEqual(["env_not_allowed"]);
  });
});
