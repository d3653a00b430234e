import type { ClusterView, MembershipView, Stats } from "@tenure/protocol";
import { expect, test } from "vitest";
import { concernsOf } from "./attention.ts";

const cluster = (changes: Partial<ClusterView> = {}): ClusterView => ({
  server_id: "i-1",
  instance_id: "i-1",
  version: "1",
  phase2: true,
  instances: [],
  dependencies: [{ name: "postgres", kind: "postgres", ok: true }],
  timeline_confirmed: true,
  ...changes,
});
const membership = (changes: Partial<MembershipView> = {}): MembershipView => ({
  view: "ready",
  settles_at: null,
  members: [],
  brake: { active: false, since: null, lost: 0, members: 0 },
  ...changes,
});
const stats = (changes: Partial<Stats> = {}): Stats => ({
  at: "2026-01-01T00:00:00.000Z",
  instance_id: "i-1",
  nodes: { online: 3, draining: 0, away: 1 },
  sessions: { online: 0 },
  deployments: { enabled: 2, unassigned: 0, running: 2, failing: 0 },
  jobs: { waiting: 0, running: 0, ended: {} as Stats["jobs"]["ended"] },
  slots: { capacity: 0, reserved: 0 },
  signers: { held: 1, released: 1, quarantined: 0 },
  dlq: { entries: 0 },
  interval_ms: 5_000,
  points: [],
  ...changes,
});

const titles = (fleet: Partial<Parameters<typeof concernsOf>[0]>) =>
  concernsOf({ cluster: cluster(), membership: membership(), stats: stats(), ...fleet }).map(
    ({ title }) => title,
  );

test("a healthy fleet and an unknown one have no problems", () => {
  expect(titles({})).toEqual([]);
  expect(concernsOf({ cluster: undefined, membership: undefined, stats: undefined })).toEqual([]);
});

test("present problems are listed before likely ones", () => {
  const brake = { active: true, since: null, lost: 4, members: 5 };
  const all = titles({
    cluster: cluster({
      dependencies: [{ name: "redis", kind: "redis", ok: false, reason: "gone" }],
      timeline: { state: "unconfirmed" },
    }),
    membership: membership({ view: "settling", brake }),
    stats: stats({
      deployments: { enabled: 9, unassigned: 2, running: 6, failing: 1 },
      signers: { held: 0, released: 0, quarantined: 1 },
      dlq: { entries: 3 },
      nodes: { online: 3, draining: 1, away: 0 },
    }),
  });
  expect(all).toEqual([
    "Redis is down",
    "Postgres has another history or is an older copy",
    "The mass-loss brake is on",
    "1 deployment fails",
    "The members view is settling",
    "2 deployments without a node",
    "1 nonce in quarantine",
    "3 dead letters",
    "1 node draining",
  ]);
});
