import { unfitness } from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import type { DeploymentRow } from "../../../packages/server/src/deployments/deployment-row.ts";
import { type Chance, createChance } from "../chance.ts";
import { createTimeline, type Timeline } from "../timeline.ts";
import { type Arbiter, createArbiter, type Protection } from "./arbiter.ts";
import { type Checks, createChecks, type Reached } from "./checks.ts";
import { createInstance, type Instance } from "./instance.ts";
import { createNemesis } from "./nemesis.ts";
import { createNodeUnit, type NodeUnit, type NodeUnitSpec } from "./node-unit.ts";
import { SETTINGS, type Settings } from "./settings.ts";

export interface ClaimsRun {
  violations: readonly string[];
  reached: Readonly<Reached>;
  faults: ReadonlyMap<string, number>;
  steps: number;
  /** How many calls the nodes made, by method and outcome. */
  calls: ReadonlyMap<string, number>;
  /** How long the last heal took until everything was as it should be. */
  healedInMs: number;
}

/** A run with one protection taken away, to see that it is missed. */
export interface Planted {
  without?: readonly Protection[];
  releasesWhileSettling?: boolean;
  neverSelfStops?: boolean;
  /** Nodes of policy `none` follow another in their loop, and the server believes them. */
  noneClaims?: boolean;
  spoil?: (ports: LoopPorts) => LoopPorts;
}

const QUIET_LIMIT_MS = 14_000;
const RAGE_MS = 45_000;
const HEAL_LIMIT_MS = 180_000;
const PEACE_MS = 8_000;
const LOOK_EVERY_MS = 250;

/** One fleet, from its first row over a minute of trouble to its peace. All of it follows from the seed. */
export async function runClaims(seed: number, planted: Planted = {}): Promise<ClaimsRun> {
  const world = createWorld(seed, planted);
  const { timeline, nemesis, checks, problems } = world;
  const stopped = () => checks.violations.length > 0;
  const until = async (ms: number, condition: () => boolean) => {
    const untilMs = timeline.monotonicMs() + ms;
    // Looked at now and then: what is asked costs more than a step.
    while (timeline.monotonicMs() < untilMs && !stopped() && !condition())
      await timeline.run(Math.min(untilMs, timeline.monotonicMs() + LOOK_EVERY_MS), stopped);
  };

  await until(3_000, () => false);
  world.addRows(world.rowsAtFirst);
  const isSettled = () => problems().length === 0;
  await until(QUIET_LIMIT_MS, isSettled);
  if (!stopped()) for (const problem of problems()) world.fail("quiet start", problem);
  if (!stopped() && world.areEqual) world.checkSpread();

  nemesis.rage(timeline.monotonicMs() + RAGE_MS);
  await until(RAGE_MS, () => false);
  // What was begun ends by itself too: nodes boot again, ways open again. Heal only makes it sooner.
  nemesis.heal();
  const healMs = timeline.monotonicMs();
  timeline.after(30_000, () => world.arbiter.nodes.releaseBrake());
  // Peace for a moment is none: what was on its way when the trouble ended still arrives.
  let peaceMs: number | undefined;
  await until(HEAL_LIMIT_MS, () => {
    peaceMs = isSettled() ? (peaceMs ?? timeline.monotonicMs()) : undefined;
    return peaceMs !== undefined && timeline.monotonicMs() - peaceMs >= PEACE_MS;
  });
  const healedInMs = (peaceMs ?? timeline.monotonicMs()) - healMs;
  if (!stopped()) for (const problem of problems()) world.fail("liveness", problem);
  return {
    violations: checks.violations,
    reached: checks.reached,
    faults: nemesis.done,
    steps: timeline.steps,
    calls: world.calls,
    healedInMs,
  };
}

function createWorld(seed: number, planted: Planted) {
  const chance = createChance(seed);
  const timeline = createTimeline();
  const settings: Settings = { ...SETTINGS, trustsCallers: planted.noneClaims ?? false };
  const areEqual = chance.isTrue(0.5);
  const checks: Checks = createChecks(() => ({
    ...{ timeline, settings, arbiter, instances, nodes },
    evicted: nemesis.evicted,
  }));
  const failures = checks.violations as string[];
  const nemesis = createNemesis(() => ({ timeline, chance, arbiter, instances, nodes, addRows }));
  const arbiter: Arbiter = createArbiter({
    nowMs: timeline.monotonicMs,
    brakeTtlMs: settings.presenceTtlMs,
    without: new Set(planted.without ?? []),
    isLocked: () => chance.isTrue(0.01),
    onOwner: (write) => checks.owner(write),
  });
  const storeMs = () => (nemesis.isSlow() ? chance.between(50, 3_000) : chance.between(0.3, 3));
  const instances: Instance[] = Array.from({ length: chance.oneOf([1, 2, 2, 3]) }, (_, index) =>
    createInstance({
      id: `i${index}`,
      timeline,
      arbiter,
      settings,
      storeMs,
      isDeaf: nemesis.isDeaf,
      samples: () => samplesOf(nodes),
      onCall: (method, outcome) => count(calls, `${method} ${outcome}`),
      releasesWhileSettling: planted.releasesWhileSettling ?? false,
    }),
  );
  const nodes: NodeUnit[] = specsOf(chance, areEqual, planted).map((spec) =>
    createNodeUnit({
      spec,
      timeline,
      random: chance.fraction,
      settings,
      instances,
      latencyMs: () =>
        nemesis.delayMs(spec.address) + chance.between(0.5, chance.isTrue(0.02) ? 400 : 15),
      isCut: (instance, way) => nemesis.isCut(spec.address, instance, way),
      isMissed: () => chance.isTrue(0.01),
      witness: checks,
      neverSelfStops: planted.neverSelfStops ?? false,
      readsSubset: seed % 2 === 0,
      ...(planted.spoil && { spoil: planted.spoil }),
    }),
  );
  const calls = new Map<string, number>();
  let made = 0;

  function addRows(count: number): void {
    for (let row = 0; row < count; row++)
      arbiter.deployments.insert(rowOf(++made, { chance, timeline, areEqual, nodes }));
  }

  for (const instance of instances) instance.start();
  for (const node of nodes) timeline.after(chance.between(0, 1_500), () => node.boot());

  return {
    timeline,
    nemesis,
    checks,
    calls,
    arbiter,
    areEqual,
    addRows,
    rowsAtFirst: 2 + Math.floor(chance.between(0, 20)),
    problems: () => problemsOf({ arbiter, nodes }),
    fail: (what: string, why: string) => failures.push(`${what}: ${why}`),
    checkSpread() {
      const counts = nodes.map(({ spec }) => arbiter.deployments.ownedBy(spec.address).length);
      if (Math.max(...counts) - Math.min(...counts) > 1)
        failures.push(`spread: equal nodes own ${counts.join(", ")}`);
    },
  };
}

function specsOf(chance: Chance, areEqual: boolean, planted: Planted): NodeUnitSpec[] {
  const policies = ["deployment_count", "deployment_count", "resource_usage", "none"];
  const same = chance.oneOf(["deployment_count", "resource_usage"]);
  return Array.from({ length: 2 + Math.floor(chance.between(0, 5)) }, (_, index) => {
    const claim_policy = areEqual
      ? "deployment_count"
      : index === 0
        ? same
        : chance.oneOf(policies);
    return {
      address: `n${index}`,
      labels: areEqual ? {} : { zone: chance.oneOf(["a", "b"]) },
      trusted_package_regexp: areEqual || chance.isTrue(0.8) ? ".*" : "api@.*",
      custom_command: areEqual || chance.isTrue(0.8),
      claim_policy,
      ...(planted.noneClaims && claim_policy === "none" && { loop_policy: "deployment_count" }),
    };
  });
}

interface RowScene {
  chance: Chance;
  timeline: Timeline;
  areEqual: boolean;
  nodes: readonly NodeUnit[];
}

function rowOf(made: number, { chance, timeline, areEqual, nodes }: RowScene): DeploymentRow {
  const now = new Date(timeline.monotonicMs());
  const boundMs = SETTINGS.selfStopMs + SETTINGS.stopGraceMs;
  const row: DeploymentRow = {
    id: `00000000-0000-4000-8000-${String(made).padStart(12, "0")}`,
    name: `d${made}`,
    package_name: "web",
    package_version: "1.0.0",
    command: "",
    args: [],
    env: {},
    type: "deployment",
    address: "",
    enabled: true,
    selector: {},
    lost_after_ms: chance.isTrue(0.3) ? boundMs : 0,
    generation: 0,
    revision: 1,
    moving_to: "",
    move_state: "",
    created_at: now,
    updated_at: now,
  };
  if (areEqual) return row;
  if (chance.isTrue(0.1)) return { ...row, type: "daemon" };
  if (chance.isTrue(0.03)) return { ...row, type: "daemon", address: "n0" };
  if (chance.isTrue(0.03)) return { ...row, type: "cron" };
  if (chance.isTrue(0.1)) return { ...row, address: chance.oneOf(nodes).spec.address };
  if (chance.isTrue(0.2)) return { ...row, selector: { zone: chance.oneOf(["a", "b", "c"]) } };
  if (chance.isTrue(0.1)) return { ...row, package_name: "", command: "serve" };
  if (chance.isTrue(0.1)) return { ...row, package_name: "api" };
  return row;
}

/** Everything that is not as it should be once nothing is wrong any more. */
function problemsOf({
  arbiter,
  nodes,
}: {
  arbiter: Arbiter;
  nodes: readonly NodeUnit[];
}): string[] {
  const members = nodes.map(({ spec }) => ({ spec, unit: arbiter.nodes.get(spec.address) }));
  const present = members.filter(({ unit }) => unit && arbiter.nodes.isPresent(unit));
  const claiming = present.filter(
    ({ spec, unit }) => spec.claim_policy !== "none" && !unit?.draining,
  );
  const problems = nodes
    .filter(({ isAlive, spec }) => isAlive && !present.some((one) => one.spec === spec))
    .map(({ spec }) => `${spec.address} is alive, and counts as lost`);
  for (const row of arbiter.deployments.all()) {
    const where = nodes.filter((node) => node.running().some(({ id }) => id === row.id));
    const runsOn = where.map(({ spec }) => spec.address);
    const able = (row.enabled ? nodes : []).filter(
      ({ spec, isAlive }) => isAlive && unfitness(row, spec, matchWhole).length === 0,
    );
    if (row.type === "daemon") {
      if (runsOn.length !== able.length)
        problems.push(`daemon ${row.name} runs on [${runsOn}] instead of ${able.length} nodes`);
    } else if (row.type === "deployment" && row.enabled && row.address === "") {
      if (claiming.some(({ spec }) => unfitness(row, spec, matchWhole).length === 0))
        problems.push(`${row.name} has no owner, and somebody could run it`);
    } else if (row.type === "deployment" && row.enabled) {
      const owner = nodes.find(({ spec }) => spec.address === row.address);
      const wanted =
        owner && unfitness(row, owner.spec, matchWhole).length === 0 ? row.address : "";
      if (!present.some(({ spec }) => spec.address === row.address))
        problems.push(`${row.name} belongs to ${row.address}, which is lost`);
      else if (runsOn.join() !== wanted && row.moving_to === "")
        problems.push(`${row.name} of ${row.address} runs on [${runsOn}]`);
    } else if (runsOn.length > 0)
      problems.push(`${row.name} should not run, and does on [${runsOn}]`);
  }
  return problems;
}

const samplesOf = (nodes: readonly NodeUnit[]) =>
  Object.fromEntries(
    nodes
      .filter(({ isAlive }) => isAlive)
      .map(({ spec, running }) => {
        const percent = 5 + 3 * running().length;
        const usage = { cpu_percent: percent, memory_percent: percent, memory_mb: 100 };
        return [spec.address, usage];
      }),
  );

export function count(counts: Map<string, number>, name: string, by = 1): void {
  counts.set(name, (counts.get(name) ?? 0) + by);
}
