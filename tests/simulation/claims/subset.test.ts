import { type CallResult, FREE_ROWS_MAX, type Member, type ResourceUsage } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import { describe, expect, test } from "vitest";
import { type PassPlan, planPass } from "../../../packages/agent/src/claim/plan.ts";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import {
  type DeploymentCache as AgentCache,
  createDeploymentCache as createAgentCache,
} from "../../../packages/agent/src/loop/deployment-cache.ts";
import {
  createDeploymentCache,
  type DeploymentCache,
} from "../../../packages/server/src/deployments/cache/deployment-cache.ts";
import {
  answerList,
  listParts,
} from "../../../packages/server/src/deployments/cache/list-delta.ts";
import { answerSubset } from "../../../packages/server/src/deployments/cache/list-subset.ts";
import type { DeploymentRow } from "../../../packages/server/src/deployments/deployment-row.ts";
import { type Chance, createChance } from "../chance.ts";

// A node decides the same with the part of the list as with every row. Both kinds of list are read from one table that
// changes at random, at random times and in pieces of random length, by nodes of both policies.

const NODES = 6;
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];
const STEPS = 400;
const LONG_MS = 1_700_000_000_000;

type Answer = CallResult<"deployment.list">;

interface Reader {
  me: string;
  whole: AgentCache;
  part: AgentCache;
  bytes: { whole: number; part: number };
}

interface Fleet {
  chance: Chance;
  cache: DeploymentCache;
  members: Map<string, Member>;
  samples: Record<string, ResourceUsage>;
  policy: string;
  origin: string;
  /** Makes what is read come in many pieces. */
  answerBytesMax: number;
}

function createReader(me: string, fleet: Fleet): Reader {
  const bytes = { whole: 0, part: 0 };
  const answered = (kind: "whole" | "part", answer: Parameters<typeof listParts>[0]): Answer => {
    const json = Buffer.concat(listParts(answer)).toString();
    bytes[kind] += json.length;
    return JSON.parse(json);
  };
  const options = (revision: string | undefined) => ({
    ...{ cache: fleet.cache, origin: fleet.origin, revision, matches: matchWhole },
    reader: { ...fleet.members.get(me)!, claim_policy: fleet.policy },
    samples: () => fleet.samples,
    answerBytesMax: fleet.answerBytesMax,
  });
  const whole = createAgentCache(async (revision) =>
    answered("whole", answerList(options(revision))),
  );
  const part = createAgentCache(async (revision, owners) => {
    const refused = new Map([...fleet.cache.rows()].map(({ id, address }) => [id, [address]]));
    return answered("part", answerSubset({ ...options(revision), owners, refused }));
  });
  return { me, whole, part, bytes };
}

function planOf(cache: AgentCache, me: string, { members, policy }: Fleet, age: number): PassPlan {
  return planPass({
    ...{ me, view: "ready", members, deployments: cache.relevant(members, matchWhole) },
    ...{ window: cache.claimWindow(me), counts: cache.counts, recent: cache.recent },
    ...(cache.owners && { owners: cache.owners }),
    ...{ resource_usage: cache.resourceUsage, policy: claimPolicyOf(policy) },
    draining: members.get(me)?.draining ?? false,
    unclaimedIntervals: () => age,
    matches: matchWhole,
  });
}

const drainingOwners = ({ members }: Fleet): string[] =>
  [...members.values()].filter(({ draining }) => draining).map(({ address }) => address);

async function compare({ me, whole, part }: Reader, fleet: Fleet): Promise<void> {
  await whole.refresh([]);
  await part.refresh(drainingOwners(fleet));
  for (const age of [0, 3]) {
    const [expected, found] = [planOf(whole, me, fleet, age), planOf(part, me, fleet, age)];
    for (const plan of [expected, found]) plan.release.sort();
    const comparable = ({ invalid, addressedDaemons, ...plan }: PassPlan) => ({
      ...plan,
      invalid: invalid.map(({ id }) => id).sort(),
      addressedDaemons: addressedDaemons.map(({ id }) => id).sort(),
    });
    expect(comparable(found)).toEqual(comparable(expected));
  }
  const own = (cache: AgentCache) =>
    cache
      .forNode(me)
      .filter(({ type, enabled, address, moving_to }) =>
        type === "daemon" ? true : enabled && (address === me || moving_to === me),
      )
      .sort((a, b) => (a.id < b.id ? -1 : 1));
  expect(own(part)).toEqual(own(whole));
}

function createFleet(seed: number, policy: string): Fleet {
  const chance = createChance(seed);
  const members = new Map<string, Member>();
  for (let nth = 0; nth < NODES; nth++) members.set(`n${nth}`, memberOf(`n${nth}`, chance));
  const samples = { n0: sampleOf(chance), n1: sampleOf(chance), n2: sampleOf(chance) };
  const cache = createDeploymentCache({ removedMax: 5, emptyMax: 2 });
  return { chance, cache, members, samples, policy, origin: "i1", answerBytesMax: 100_000 };
}

const sampleOf = (chance: Chance): ResourceUsage => ({
  ...{ cpu_percent: chance.oneOf([10, 20]), memory_percent: 10, memory_mb: 1 },
});

const memberOf = (address: string, chance: Chance): Member => ({
  ...{ address, name: address, instance_id: "i", epoch: 1, claim_policy: "deployment_count" },
  labels: { zone: chance.oneOf(["a", "a", "b"]) },
  trusted_package_regexp: chance.oneOf([".*", ".*", "web@.*"]),
  custom_command: chance.isTrue(0.7),
  tenants: chance.oneOf([["default"], ["default"], ["default", "blue"], ["*"]]),
  ...{ draining: chance.isTrue(0.1), tags: {}, joined_at: "2026-01-01T00:00:00.000Z" },
});

let lastMs = LONG_MS;

/** The row as one that can be read. */
function readable({ skipped, isHidden, ...row }: DeploymentRow): DeploymentRow {
  return row;
}

function rowOf(nth: number, { chance, members, policy }: Fleet): DeploymentRow {
  lastMs += chance.oneOf([0, 1, 1_000, 4_000]);
  const anyone = [...members.keys(), "gone", ""];
  // Of another owner's row that became unreadable a whole list keeps the owner, and a subset does not know it.
  const mayHide = nth % 10 > 6 && policy !== "resource_usage";
  const row: DeploymentRow = {
    id: `00000000-0000-4000-8000-${String(nth).padStart(12, "0")}`,
    tenant: chance.oneOf(["default", "default", "default", "blue"]),
    ...{ name: `d${nth}`, package_name: chance.oneOf(["web", "web", "api"]), command: "" },
    ...{ package_version: "1.0.0", args: ["-x"], enabled: chance.isTrue(0.9) },
    env: chance.isTrue(0.05) ? { NODE_OPTIONS: "-r x" } : {},
    type: mayHide
      ? ["deployment", "daemon"][nth % 2]!
      : chance.oneOf([...Array<string>(12).fill("deployment"), "daemon", "cron"]),
    address: chance.oneOf(
      mayHide ? [`n${nth % NODES}`, ""] : [...anyone, ...Array<string>(8).fill("")],
    ),
    selector: chance.oneOf<Record<string, string>>([{}, {}, {}, { zone: "a" }, { address: "n1" }]),
    ...{ lost_after_ms: 0, generation: Math.floor(lastMs - LONG_MS), revision: 1 },
    ...{ moving_to: "", move_state: "" as const },
    ...{ created_at: new Date(LONG_MS), updated_at: new Date(lastMs) },
  };
  const to = chance.oneOf([...members.keys()]);
  if (row.type === "deployment" && row.address !== "" && chance.isTrue(0.1))
    return { ...row, moving_to: to, move_state: chance.oneOf(["installing", "ready", "stopped"]) };
  // A whole list has its owner's skipped rows among the recent ones.
  const maySkip = policy !== "resource_usage" || row.type === "daemon";
  if (maySkip && chance.isTrue(mayHide ? 0.3 : 0.1))
    return { ...row, skipped: PROBLEM, isHidden: mayHide && chance.isTrue(0.5) };
  return row;
}

const PROBLEM = {
  ...{ event: "deployment.skipped" as const, message: "bad", subject: "d" },
  details: {},
};

function change(fleet: Fleet): void {
  const { chance, cache, members } = fleet;
  const nth = Math.floor(chance.between(0, 60));
  if (chance.isTrue(0.1)) cache.remove(rowOf(nth, fleet).id);
  else cache.put(rowOf(nth, fleet));
  // The newest row of the list is in both kinds: what is recent is measured against it.
  cache.put({
    ...readable(rowOf(99, fleet)),
    ...{ tenant: "default", type: "daemon", updated_at: new Date(lastMs), moving_to: "" },
  });
  if (chance.isTrue(0.02)) {
    const address = chance.oneOf([...members.keys()]);
    members.set(address, memberOf(address, chance));
    fleet.members = new Map(members);
  }
  if (chance.isTrue(0.02)) fleet.samples = { ...fleet.samples, n3: sampleOf(chance) };
}

describe.each(["deployment_count", "resource_usage", "none"])("%s", (policy) => {
  test.each(
    SEEDS,
  )("a node plans the same with the part as with every row (seed %i)", async (seed) => {
    const fleet = createFleet(seed, policy);
    const readers = [...fleet.members.keys()].map((me) => createReader(me, fleet));
    for (let step = 0; step < STEPS; step++) {
      change(fleet);
      fleet.answerBytesMax = fleet.chance.oneOf([100, 1_000, 100_000]);
      if (fleet.chance.isTrue(0.01)) fleet.origin = `i${step}`;
      if (fleet.chance.isTrue(0.5)) await compare(fleet.chance.oneOf(readers), fleet);
    }
    for (const reader of readers) await compare(reader, fleet);
  });
});

describe("many free rows", () => {
  test.each([
    "deployment_count",
    "resource_usage",
  ])("%s: the same candidates and claim windows, and a fraction of the bytes", async (policy) => {
    const fleet = createFleet(1, policy);
    for (const address of fleet.members.keys())
      fleet.members.set(address, { ...memberOf(address, fleet.chance), ...PLAIN });
    const readers = [...fleet.members.keys()].map((me) => createReader(me, fleet));
    for (let nth = 0; nth < 8_000; nth++) fleet.cache.put(freeRow(nth, fleet));
    for (const reader of readers) await compare(reader, fleet);
    for (const { bytes } of readers) expect(bytes.part).toBeLessThan(70_000);
    for (const { bytes } of readers) expect(bytes.whole).toBeGreaterThan(2_900_000);
    // As they are claimed, the rows that are left move up.
    for (let nth = 0; nth < 7_600; nth += 400) {
      for (let at = nth; at < nth + 400; at++)
        fleet.cache.put({
          ...freeRow(at, fleet),
          address: fleet.chance.oneOf([...fleet.members.keys()]),
        });
      await compare(fleet.chance.oneOf(readers), fleet);
    }
    for (const reader of readers) await compare(reader, fleet);
  });
});

test("one row more than a pass considers is enough for a claim window", async () => {
  const fleet = createFleet(1, "deployment_count");
  for (const address of fleet.members.keys())
    fleet.members.set(address, { ...memberOf(address, fleet.chance), ...PLAIN });
  for (let nth = 0; nth < FREE_ROWS_MAX + 1; nth++) fleet.cache.put(freeRow(nth, fleet));
  const windows: number[] = [];
  for (const reader of [...fleet.members.keys()].map((me) => createReader(me, fleet))) {
    await compare(reader, fleet);
    windows.push(reader.part.claimWindow(reader.me).length);
  }
  expect(Math.max(...windows)).toBeGreaterThan(0);
});

const freeRow = (nth: number, fleet: Fleet): DeploymentRow => ({
  ...readable(rowOf(nth, fleet)),
  ...{ tenant: "default", type: "deployment", address: "", enabled: true, selector: {} },
  ...{ package_name: "web", env: {}, moving_to: "", move_state: "" as const },
});

const PLAIN = { tenants: ["default"], trusted_package_regexp: ".*", draining: false };
