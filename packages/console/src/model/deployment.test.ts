import type { DeploymentStatus, DeploymentView } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import {
  currentStatuses,
  deploymentCondition,
  groupOf,
  restartsOf,
  runs,
  statusCondition,
} from "./deployment.ts";

const NOW = "2026-01-01T00:00:00.000Z";

function status(changes: Partial<DeploymentStatus> = {}): DeploymentStatus {
  return {
    deployment_id: "d",
    address: "a",
    state: "running",
    generation: 3,
    pid: 1,
    restarts: 0,
    exit_code: null,
    signal: null,
    last_error: null,
    spec_hash: null,
    started_at: NOW,
    updated_at: NOW,
    ...changes,
  };
}

function deployment(changes: Partial<DeploymentView> = {}): DeploymentView {
  return {
    id: "d",
    name: "web",
    package_name: "@acme/web",
    package_version: "1.0.0",
    command: "",
    args: [],
    env: {},
    type: "deployment",
    address: "a",
    enabled: true,
    selector: {},
    lost_after_ms: 0,
    generation: 3,
    revision: 1,
    moving_to: "",
    move_state: "",
    created_at: NOW,
    updated_at: NOW,
    status: [status()],
    ...changes,
  };
}

const wordOf = (changes: Partial<DeploymentView>) => deploymentCondition(deployment(changes)).word;

describe("a deployment", () => {
  test("has the state that its node reports in the current term", () => {
    expect(deploymentCondition(deployment())).toEqual({ tone: "good", word: "running" });
    expect(wordOf({ status: [status({ state: "backoff" })] })).toBe("backoff");
    expect(wordOf({ status: [status({ generation: 2 })] })).toBe("claimed");
    expect(wordOf({ status: [status({ address: "b" })] })).toBe("claimed");
  });

  test("has the last error as its detail when it fails", () => {
    const view = deployment({ status: [status({ state: "failed", last_error: "no such file" })] });
    expect(deploymentCondition(view)).toEqual({
      tone: "bad",
      word: "failed",
      detail: "no such file",
    });
  });

  test("without an owner, or with a lost one, is not healthy", () => {
    expect(wordOf({ address: "" })).toBe("unassigned");
    expect(deploymentCondition(deployment(), () => false)).toEqual({
      tone: "bad",
      word: "node lost",
    });
  });

  test("that is disabled, moving or of an unknown type shows that first", () => {
    expect(wordOf({ enabled: false, address: "" })).toBe("disabled");
    expect(wordOf({ moving_to: "b", move_state: "installing" })).toBe("moving");
    expect(wordOf({ type: "cron" })).toBe("skipped");
  });
});

describe("a daemon", () => {
  const daemon = (...status: DeploymentStatus[]) =>
    deploymentCondition(deployment({ type: "daemon", address: "", status }));

  test("has the state of its worst node", () => {
    expect(daemon().word).toBe("on no node");
    expect(daemon(status(), status({ address: "b" })).word).toBe("running on 2");
    const one = daemon(status(), status({ address: "b", state: "backoff" }));
    expect(one).toMatchObject({ tone: "bad", word: "backoff on 1 of 2" });
  });
});

test("the groups of the filter hold everything once", () => {
  const groups = [
    {},
    { address: "" },
    { enabled: false },
    { status: [status({ state: "failed" })] },
  ].map((changes) => groupOf(deploymentCondition(deployment(changes))));
  expect(groups).toEqual(["running", "pending", "disabled", "failing"]);
});

test("what it runs, and how often it was restarted in this term", () => {
  expect(runs(deployment())).toBe("@acme/web@1.0.0");
  expect(runs(deployment({ package_name: "", command: "sleep 1" }))).toBe("sleep 1");
  const view = deployment({
    status: [status({ restarts: 2 }), status({ generation: 1, restarts: 9 })],
  });
  expect(restartsOf(view)).toBe(2);
});

test("a status of the past is shown as what was", () => {
  expect(statusCondition(status({ past: true }))).toEqual({ tone: "idle", word: "was running" });
  expect(currentStatuses(deployment({ status: [status({ past: true })] }))).toEqual([]);
});
