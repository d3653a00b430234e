import type { NodeView } from "@tenure/protocol";
import { createChance } from "../chance.ts";
import { createTimeline } from "../timeline.ts";
import { createBus } from "./bus.ts";
import { createJobChecks, type JobChecks } from "./checks.ts";
import { type Client, createClient } from "./client.ts";
import type { ServerParts } from "./parts.ts";
import { createScheduler, JOBS_SETTINGS, type Scheduler } from "./scheduler.ts";
import { createSharedStore, type Spoil, serverClock, WALL_START_MS } from "./store.ts";
import { createWorker, type Worker } from "./worker.ts";

export interface JobsRun {
  violations: readonly string[];
  reached: JobChecks["reached"];
  faults: ReadonlyMap<string, number>;
  requests: number;
  steps: number;
  healedInMs: number;
}

const RAGE_MS = 20_000;
const HEAL_LIMIT_MS = 300_000;
const LOOK_EVERY_MS = 500;
const HEARTBEAT_MS = 3_000;
const OWNER_TTL_MS = 600_000;

/** Jobs of a few sessions on a few nodes over a few instances, through trouble that the seed chooses, to their end. */
export async function runJobs(
  parts: ServerParts,
  seed: number,
  { spoil }: { spoil?: Spoil } = {},
): Promise<JobsRun> {
  const world = await createWorld(parts, seed, spoil);
  const { timeline, checks } = world;
  const stopped = () => checks.violations.length > 0;
  const until = async (ms: number, condition: () => boolean) => {
    const untilMs = timeline.monotonicMs() + ms;
    while (timeline.monotonicMs() < untilMs && !stopped() && !condition())
      await timeline.run(Math.min(untilMs, timeline.monotonicMs() + LOOK_EVERY_MS), stopped);
  };
  world.rage(RAGE_MS);
  await until(RAGE_MS, () => false);
  world.heal();
  const healMs = timeline.monotonicMs();
  await until(HEAL_LIMIT_MS, () => world.open().length === 0);
  const healedInMs = timeline.monotonicMs() - healMs;
  // I6: whatever was left behind runs out within one slot expiry.
  await until(JOBS_SETTINGS.slotTtlMs + 1_000, () => false);
  if (!stopped()) for (const problem of world.left()) checks.fail(problem);
  await world.close();
  return {
    violations: checks.violations,
    reached: checks.reached,
    faults: world.faults,
    requests: world.requests(),
    steps: timeline.steps,
    healedInMs,
  };
}

async function createWorld(parts: ServerParts, seed: number, spoil: Spoil | undefined) {
  const chance = createChance(seed);
  const timeline = createTimeline({ turns: 3 });
  const inner = parts.openMemory({ prefix: "t", clock: serverClock(timeline) });
  const faults = new Map<string, number>();
  let isCalm = false;
  let downUntilMs = 0;
  let epoch = 0;
  let made = 0;
  let requests = 0;
  const checks: JobChecks = createJobChecks({
    timeline,
    jobIn: parts.jobIn,
    space: () => store.space,
    capacityOf: (nodeId) => workers.find((worker) => worker.nodeId === nodeId)?.capacity ?? 0,
  });
  const store = await createSharedStore({
    ...{ inner, timeline, chance, spoil },
    isCluster: chance.isTrue(0.5),
    weather: {
      latencyMs: () => chance.between(0.2, !isCalm && chance.isTrue(0.02) ? 500 : 2),
      isDown: () => timeline.monotonicMs() < downUntilMs,
      isLost: () => !isCalm && chance.isTrue(0.005),
    },
    ran: checks.ran,
  });
  let schedulers: Scheduler[] = [];
  const bus = createBus({
    ...{ timeline, chance },
    schedulers: () => schedulers,
    storeNowMs: () => WALL_START_MS + timeline.monotonicMs(),
  });
  const fleet = (): NodeView[] => workers.flatMap((worker) => worker.view() ?? []);

  function start(): void {
    schedulers.push(
      createScheduler({
        ...{ id: `i${++made}`, parts, timeline, chance, store, bus, fleet },
        refreshMs: chance.between(500, 2_000),
        problem: (event, error) => {
          if (!isCalm || !spoil) checks.fail(`${event}: ${String(error)}`);
        },
      }),
    );
  }

  const ownerOf = (kind: "node" | "session") => ({
    claim: ({ hot, id }: Scheduler, name: string, mine: number) =>
      parts.claimOwner(hot, {
        key: parts.ownerKeys[kind](hot.prefix, name),
        owner: { instanceId: id, epoch: mine },
        ttlMs: OWNER_TTL_MS,
      }),
    drop: ({ hot, id }: Scheduler, name: string, mine: number) =>
      parts.dropOwner(hot, parts.ownerKeys[kind](hot.prefix, name), {
        instanceId: id,
        epoch: mine,
      }),
  });
  const common = {
    ...{ timeline, chance, checks },
    schedulers: () => schedulers,
    nextEpoch: () => ++epoch,
  };
  const workers: Worker[] = Array.from({ length: chance.oneOf([1, 2, 3, 4]) }, (_, index) =>
    createWorker({
      ...common,
      nodeId: `n${index}`,
      capacity: chance.oneOf([1, 2, 4]),
      owner: ownerOf("node"),
      heartbeatMs: HEARTBEAT_MS,
    }),
  );
  const clients: Client[] = Array.from({ length: chance.oneOf([1, 2, 3]) }, (_, index) =>
    createClient({ ...common, sessionId: `s${index}`, owner: ownerOf("session") }),
  );
  for (let count = chance.oneOf([1, 2, 2, 3]); count > 0; count--) start();
  for (const end of [...workers, ...clients]) end.connect();

  const FAULTS: Record<string, () => void> = {
    kill_instance() {
      const alive = schedulers.filter(({ isAlive }) => isAlive);
      if (alive.length === 0) return;
      chance.oneOf(alive).kill();
      timeline.after(chance.between(100, 4_000), start);
    },
    crash_node: () => chance.oneOf(workers).crash(),
    cut_node: () => chance.oneOf(workers).disconnect(),
    cut_session: () => chance.oneOf(clients).disconnect(),
    store_away() {
      downUntilMs = timeline.monotonicMs() + chance.between(200, 6_000);
    },
    burst() {
      for (let count = 0; count < 6; count++) submit();
    },
  };

  function submit(): void {
    requests += 1;
    chance.oneOf(clients).submit();
  }

  function every(minMs: number, maxMs: number, untilMs: number, act: () => void): void {
    timeline.after(chance.between(minMs, maxMs), () => {
      if (timeline.monotonicMs() >= untilMs) return;
      act();
      every(minMs, maxMs, untilMs, act);
    });
  }

  return {
    ...{ timeline, checks, faults },
    requests: () => requests,
    rage(ms: number) {
      const untilMs = timeline.monotonicMs() + ms;
      every(50, 1_500, untilMs, submit);
      every(200, 4_000, untilMs, () => {
        const name = chance.oneOf(Object.keys(FAULTS));
        faults.set(name, (faults.get(name) ?? 0) + 1);
        FAULTS[name]!();
      });
    },
    heal() {
      isCalm = true;
      downUntilMs = 0;
      for (const end of [...workers, ...clients]) end.calm();
      schedulers = schedulers.filter(({ isAlive }) => isAlive);
      if (schedulers.length === 0) start();
    },
    open: () => [
      ...clients.flatMap((client) => client.open().map((request) => `${request} has no result`)),
      ...leftIn(store.space, "due"),
    ],
    left: () => [
      ...clients.flatMap((client) =>
        client.open().map((request) => `liveness: ${request} is open`),
      ),
      ...leftIn(store.space, "due"),
      ...leftIn(store.space, "reserved"),
    ],
    async close() {
      for (const scheduler of schedulers) scheduler.kill();
      void inner.close();
    },
  };

  /** What is still in the index, or still holds a slot. */
  function leftIn(space: typeof store.space, kind: "due" | "reserved"): string[] {
    const keys =
      kind === "due"
        ? Array.from({ length: 64 }, (_, shard) => `t:v1:jobs:due:${shard}`)
        : workers.map(({ nodeId }) => `t:v1:nodes:{node:${nodeId}}:reserved`);
    return keys
      .filter((key) => space.has(key))
      .flatMap((key) =>
        [...space.scores(key)]
          .filter(([, atMs]) => kind === "due" || atMs > space.nowMs())
          .map(([name]) => `${kind === "due" ? "liveness" : "I6"}: ${name} is left in ${key}`),
      );
  }
}
