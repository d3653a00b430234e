import { setTimeout as wait } from "node:timers/promises";
import type { HistoryRecorder } from "@tenure/testing/history";
import type { FaultProxy } from "@tenure/testing/processes/proxy";
import type { MovableClock } from "@tenure/testing/programs/faketime";
import type { RedisServer } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import type { SmallDisk } from "@tenure/testing/stores/small-disk";
import type { Actor, LineName } from "./actor.ts";
import type { OwnFault } from "./dimension.ts";
import { describeFault, type PlannedFault } from "./schedule.ts";
import type { World } from "./world.ts";

export interface Nemesis {
  /** Does what is planned, each in its time. Resolves when the last has ended. */
  run(plan: readonly PlannedFault[], startedMs: number): Promise<void>;
  /** Ends all faults: everybody runs and reaches everybody. */
  heal(): Promise<void>;
  /** How many of each were done. */
  readonly done: ReadonlyMap<string, number>;
}

export function createNemesis(
  world: World,
  {
    history,
    print,
    ownFaults = [],
  }: {
    history: HistoryRecorder;
    print: (line: string) => void;
    ownFaults?: readonly OwnFault[] | undefined;
  },
): Nemesis {
  const done = new Map<string, number>();
  // One thing at a time to one thing: a process that is being started cannot be stopped as well.
  const busy = new Map<string, Promise<void>>();
  /** The last fault that is done alone. */
  let alone: Promise<void> = Promise.resolve();

  async function inflict(planned: PlannedFault): Promise<void> {
    const { fault, role, target } = planned;
    const event = { process: "nemesis", f: fault, value: planned };
    history.record({ ...event, type: "invoke" });
    print(describeFault(planned));
    try {
      const own = ownFaults.find(({ card }) => card.role === role && card.fault === fault);
      await (own ? own.act(world, planned) : act(world, planned));
      done.set(`${role}.${fault}`, (done.get(`${role}.${fault}`) ?? 0) + 1);
      history.record({ ...event, type: "ok" });
    } catch (error) {
      // A fault that could not be done is no failure of what is tested; one never done shows in the counts.
      print(`         ${fault} of ${role} ${target} was not possible: ${error}`);
      history.record({ ...event, type: "info", value: String(error) });
    }
  }

  return {
    done,
    async run(plan, startedMs) {
      const under: Promise<void>[] = [];
      for (const planned of plan) {
        await wait(Math.max(0, startedMs + planned.atMs - performance.now()));
        const key = `${planned.role}-${planned.target}`;
        const before = planned.isAlone ? [alone, ...busy.values()] : [alone, busy.get(key)];
        const next = Promise.all(before).then(() => inflict(planned));
        if (planned.isAlone) alone = next;
        busy.set(key, next);
        under.push(next);
      }
      await Promise.all(under);
    },
    async heal() {
      await Promise.all([...busy.values()]);
      const actors = [...world.instances, ...world.parties];
      for (const { lines } of actors)
        for (const proxy of Object.values(lines).flat()) await proxy.heal();
      await Promise.all(actors.map((actor) => actor.heal()));
    },
  };
}

async function act(world: World, planned: PlannedFault): Promise<void> {
  const { role, target, fault } = planned;
  if (role === "postgres") return disturbPostgres(world, planned);
  if (role === "redis") return disturbRedis(world.redis, planned);
  if (fault === "storm") {
    for (const { lines } of world.instances) for (const proxy of lines.edge ?? []) proxy.reset();
    return;
  }
  const actors = role === "instance" ? world.instances : world.parties;
  const actor = actors.filter((each) => each.role === role)[target];
  if (!actor) throw new Error(`there is no ${role} ${target}`);
  const [line, way] = fault.split("-") as [LineName, string | undefined];
  if (way === undefined) return disturbProcess(actor, planned);
  const proxies = actor.lines[line];
  if (!proxies) throw new Error(`${actor.name} has no line to ${line}`);
  await Promise.all(proxies.map((proxy) => disturbLine(proxy, way, planned)));
}

async function disturbProcess(actor: Actor, planned: PlannedFault): Promise<void> {
  const { fault, forMs } = planned;
  if (fault === "clock") return moveClock(actor.clock, planned);
  if (fault === "nospace") return fillDisk(actor.disk, planned);
  if (fault === "freeze") {
    await actor.freeze();
    await wait(forMs);
    return actor.thaw();
  }
  if (fault === "swap") {
    const other = actor.builds.find((build) => build !== actor.build);
    await actor.stop();
    await wait(forMs);
    return actor.start(other);
  }
  await (fault === "stop" ? actor.stop() : actor.kill());
  await wait(forMs);
  await actor.start();
}

async function disturbLine(
  proxy: FaultProxy,
  way: string,
  { forMs, variant }: PlannedFault,
): Promise<void> {
  switch (way) {
    case "reset":
      return proxy.reset();
    case "flap":
      for (let leftMs = forMs; leftMs > 0; leftMs -= 400) {
        proxy.reset();
        await wait(400);
      }
      return;
    case "cut":
      // Until it has happened, or nobody says it in that time.
      await Promise.race([proxy.cutAfter((bytes) => bytes.includes(variant)), wait(forMs)]);
      return proxy.heal();
    case "partition":
      proxy.blackHole(variant as "both" | "up" | "down");
      break;
    case "delay":
      proxy.delay(Number(variant));
      break;
    case "slow":
      proxy.slow(Number(variant), "down");
      break;
    default:
      throw new Error(`nobody knows the fault ${way}`);
  }
  await wait(forMs);
  await proxy.heal();
}

/** The wall clock alone: what measures durations goes on as it was. */
async function moveClock(
  clock: MovableClock | undefined,
  { variant, forMs }: PlannedFault,
): Promise<void> {
  if (!clock) throw new Error("its clock cannot be moved");
  clock.move(Number(variant));
  await wait(forMs);
  clock.move(0);
}

async function fillDisk(disk: SmallDisk | undefined, { forMs }: PlannedFault): Promise<void> {
  if (!disk) throw new Error("its disk cannot be filled");
  await disk.fill();
  await wait(forMs);
  disk.free();
}

async function disturbPostgres(world: World, planned: PlannedFault): Promise<void> {
  const { postgres } = world;
  const { fault, forMs } = planned;
  if (fault === "clock") return moveClock(world.postgresClock, planned);
  if (fault === "nospace") {
    await fillDisk(world.postgresDisk, planned);
    return postgres.revive(); // without room for its log it gives up
  }
  if (fault === "freeze") {
    await postgres.freeze();
    await wait(forMs);
    return postgres.thaw();
  }
  await postgres.kill("immediate");
  await wait(forMs);
  await postgres.start();
}

async function disturbRedis(
  nodes: readonly RedisServer[],
  { fault, forMs, target }: PlannedFault,
): Promise<void> {
  const redis = nodes[target]!;
  switch (fault) {
    case "freeze":
      await redis.freeze();
      await wait(forMs);
      return redis.thaw();
    case "crash":
      await redis.kill();
      await wait(forMs);
      return redis.start();
    case "empty":
      return redis.restartEmpty();
    case "failover":
      return failOver([...nodes.slice(target), ...nodes.slice(0, target)]);
    case "full":
      await askRedis(redis.port, "CONFIG SET maxmemory 1");
      await wait(forMs);
      await askRedis(redis.port, "CONFIG SET maxmemory 0");
      return;
    default:
      throw new Error(`nobody knows the fault ${fault}`);
  }
}

/** In good order: a replica takes over what its master has. The first that is a replica; masters refuse. */
async function failOver(nodes: readonly RedisServer[]): Promise<void> {
  for (const { port } of nodes)
    if ((await askRedis(port, "CLUSTER FAILOVER")).startsWith("+OK")) return;
  throw new Error("no node is a replica");
}
