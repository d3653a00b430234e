import { matchWhole } from "@tenure/protocol/pattern";
import { describe, expect, test } from "vitest";
import type { DeploymentRow, StatusRow } from "./deployment-row.ts";
import { explain, type WhyInput, type WhyNode } from "./why.ts";

const NOW_MS = 1_000_000;
const row: DeploymentRow = {
  id: "0190f3a8-7b7e-7c3d-9a55-2f1b3c4d5e6f",
  name: "web",
  package_name: "web",
  package_version: "1.0.0",
  command: "",
  args: [],
  env: {},
  type: "deployment",
  address: "",
  enabled: true,
  selector: {},
  lost_after_ms: 0,
  generation: 3,
  revision: 1,
  moving_to: "",
  move_state: "",
  created_at: new Date(0),
  updated_at: new Date(0),
};
const node = (address: string, changes: Partial<WhyNode> = {}): WhyNode => ({
  address,
  name: address,
  present: true,
  online: true,
  left_at: null,
  presence_expires_at: new Date(NOW_MS + 45_000),
  tags: {},
  draining: false,
  claim_policy: "deployment_count",
  labels: {},
  trusted_package_regexp: ".*",
  custom_command: false,
  ...changes,
});
const status = (address: string, changes: Partial<StatusRow> = {}): StatusRow => ({
  deployment_id: row.id,
  address,
  state: "running",
  generation: 3,
  pid: 7,
  restarts: 0,
  exit_code: null,
  signal: null,
  last_error: null,
  spec_hash: null,
  started_at: null,
  updated_at: new Date(0),
  ...changes,
});
const gone: Partial<WhyNode> = { present: false, online: false, left_at: new Date(NOW_MS - 5_000) };

const why = (changes: Partial<DeploymentRow>, input: Partial<WhyInput> = {}) =>
  explain({
    row: { ...row, ...changes },
    nodes: [node("a")],
    statuses: [],
    view: "ready",
    brake: { active: false, lost: 0, members: 0 },
    nowMs: NOW_MS,
    matches: matchWhole,
    ...input,
  });
const codes = (...question: Parameters<typeof why>) =>
  why(...question).reasons.map(({ code }) => code);

describe("why a row is not looked at", () => {
  test("R11: a deployment of unknown type", () => {
    expect(codes({ type: "cron" })).toEqual(["ERR_INVALID_TYPE"]);
  });
  test("a disabled deployment", () => {
    expect(why({ enabled: false })).toMatchObject({ answer: "it is disabled" });
  });
});

describe("why a deployment is unassigned", () => {
  test.each<[string, Partial<DeploymentRow>, Partial<WhyNode>, string]>([
    ["its package is not trusted", {}, { trusted_package_regexp: "other@.*" }, "package_untrusted"],
    ["patterns cannot be read", {}, { trusted_package_regexp: "(?!x).*" }, "pattern_unreadable"],
    ["its version is no version", { package_version: "npm:other@1" }, {}, "version_not_exact"],
    ["its command is not allowed", { command: "x" }, {}, "command_not_allowed"],
    ["its env loads code", { env: { NODE_OPTIONS: "x" } }, {}, "env_not_allowed"],
    ["there is nothing in it", { package_name: "" }, {}, "nothing_to_run"],
    ["its labels are nobody's", { selector: { zone: "x" } }, {}, "selector_mismatch"],
    ["every node is of policy none", {}, { claim_policy: "none" }, "policy_none"],
    ["every node is draining", {}, { draining: true }, "node_draining"],
  ])("%s", (_, change, traits, code) => {
    const { reasons, answer } = why(change, { nodes: [node("a", traits), node("b", traits)] });
    expect(reasons.map((reason) => reason.code)).toEqual(["no_node_fits", code, code]);
    expect(answer).toContain("none of the 2 node-units");
    expect(why(change, { nodes: [node("a", traits)] }).answer).not.toContain("none of the");
  });

  test("a node whose pattern is invalid", () => {
    const nodes = [node("a", { trusted_package_regexp: "(?<=@)web@.*" })];
    expect(why({}, { nodes }).answer).toMatch(
      /^node \S+ trusts no package: its TRUSTED_PACKAGE_REGEXP must be a regular expression in RE2/,
    );
  });

  test("no node is present", () => {
    expect(codes({}, { nodes: [] })).toEqual(["no_node_units"]);
    expect(why({}, { nodes: [node("a", gone)], view: "settling" }).answer).toContain("settling");
  });

  test("a deployment pinned to an absent or unknown node", () => {
    const nodes = [node("a"), node("b", gone)];
    expect(why({ selector: { address: "b" } }, { nodes }).answer).toContain("which is not there");
    expect(why({ selector: { address: "x" } }, { nodes }).answer).toContain("not known");
  });

  test("a deployment that a node will claim in a moment", () => {
    const nodes = [node("a"), node("b", { claim_policy: "none" })];
    expect(why({}, { nodes })).toMatchObject({
      answer: "1 of 2 node-units may take it; the least loaded does at its next pass",
      reasons: [{ code: "waiting_for_claim" }, { code: "policy_none", address: "b" }],
    });
  });
});

describe("why a deployment with an owner does not run", () => {
  const assigned = { address: "a" };

  test.each([
    "installing",
    "starting",
    "backoff",
    "stopping",
    "stopped",
    "failed",
    "refused",
    "running",
  ] as const)("its node says %s", (state) => {
    const statuses = [status("a", { state, last_error: "no space left" })];
    const { answer, reasons } = why(assigned, { statuses });
    expect(reasons).toMatchObject([{ code: state, address: "a" }]);
    expect(answer).toContain("no space left");
  });

  test("a node that has not reported yet, or only about an earlier term", () => {
    expect(codes(assigned)).toEqual(["not_reported"]);
    expect(codes(assigned, { statuses: [status("a", { generation: 2 })] })).toEqual([
      "not_reported",
    ]);
    expect(codes(assigned, { statuses: [status("b")] })).toEqual(["not_reported"]);
  });

  test("a deployment that is being moved", () => {
    const moving = { ...assigned, moving_to: "b", move_state: "installing" as const };
    const nodes = [node("a", { draining: true }), node("b")];
    expect(codes(moving, { nodes, statuses: [status("a")] })).toEqual(["moving", "running"]);
  });

  test("a draining node, and no other node that may take over", () => {
    const draining = node("a", { draining: true });
    const others = [node("b"), node("c", { claim_policy: "none" })];
    const statuses = [status("a")];
    expect(codes(assigned, { nodes: [draining], statuses })).toEqual(["owner_draining", "running"]);
    expect(codes(assigned, { nodes: [draining, ...others], statuses })).toEqual([
      "owner_draining",
      "policy_none",
      "running",
    ]);
    const failed = [...statuses, status("b", { state: "failed", last_error: "npm said no" })];
    const { answer } = why(assigned, { nodes: [draining, node("b")], statuses: failed });
    expect(answer).toBe("its node a is draining; node b says failed (npm said no)");
  });

  test("an owner that is unknown, left or silent", () => {
    expect(codes({ address: "typo" })).toEqual(["owner_unknown"]);
    expect(codes(assigned, { nodes: [node("a", gone), node("b")] })).toEqual(["owner_lost"]);
    const silent = { present: false, presence_expires_at: new Date(NOW_MS - 1) };
    const { answer } = why(assigned, { nodes: [node("a", silent), node("b")] });
    expect(answer).toContain("does not answer any more");
  });

  test.each<[string, Partial<WhyInput>, number, string]>([
    ["the brake is on", { brake: { active: true, lost: 3, members: 5 } }, 0, "brake_active"],
    ["the view is settling", { view: "settling" }, 0, "view_settling"],
    ["lost_after_ms has not passed", {}, 60_000, "lost_after_wait"],
    ["nobody else is there", { nodes: [node("a", gone)] }, 0, "nobody_releases"],
    [
      "all others are of policy none",
      { nodes: [node("a", gone), node("b", { claim_policy: "none" })] },
      0,
      "nobody_releases",
    ],
  ])("its node is lost and %s", (_, input, lost_after_ms, code) => {
    const question = { nodes: [node("a", gone), node("b")], ...input };
    expect(codes({ ...assigned, lost_after_ms }, question)).toEqual(["owner_lost", code]);
  });
});

test.each([
  [{ active: true, lost: 3, members: 5 }, true],
  [{ active: true }, false],
])("with %j the size of the fleet is shown: %s", (brake, isShown) => {
  const nodes = [node("a", gone), node("b")];
  const { reasons } = why({ address: "a" }, { nodes, brake });
  const { message } = reasons.find(({ code }) => code === "brake_active")!;
  expect(/\d/.test(message)).toBe(isShown);
});

describe("why a daemon does not run everywhere", () => {
  const daemon = { type: "daemon" };
  test("a daemon has an answer for every present node", () => {
    const nodes = [
      node("a"),
      node("b"),
      node("c", { trusted_package_regexp: "" }),
      node("d", gone),
      node("e", { claim_policy: "none", draining: true }),
    ];
    const statuses = [status("a"), status("b", { state: "failed" }), status("e")];
    expect(why(daemon, { nodes, statuses })).toMatchObject({
      answer: "it runs on 2 of the 3 node-units that may run it",
      reasons: [
        { code: "not_everywhere" },
        { code: "running", address: "a" },
        { code: "failed", address: "b" },
        { code: "package_untrusted", address: "c" },
        { code: "running", address: "e" },
      ],
    });
  });
  test("a daemon that runs", () => {
    expect(codes(daemon, { statuses: [status("a")] })).toEqual(["running", "running"]);
  });
  test("R12: the address of a daemon is ignored", () => {
    expect(codes({ ...daemon, address: "x" }, { statuses: [status("a")] })).toEqual([
      "running",
      "ERR_DAEMON_ADDRESS_SET",
      "running",
    ]);
  });
  test("a daemon that no node may run, or without any node", () => {
    expect(codes({ ...daemon, selector: { zone: "x" } })).toEqual([
      "no_node_fits",
      "selector_mismatch",
    ]);
    expect(codes(daemon, { nodes: [] })).toEqual(["no_node_units"]);
  });
});
