import { setTimeout as wait } from "node:timers/promises";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import type { Actor } from "../actor.ts";
import type { Dimension, OwnFault } from "../dimension.ts";
import type { Workload } from "../workload.ts";
import type { World } from "../world.ts";
import {
  type Child,
  checkSteady,
  childrenOf,
  expectPeace,
  historyIn,
  keyOfChild,
  loadSteadily,
  recordMet,
  recordProblem,
  steadyUnits,
  urlsOf,
} from "./steady-fleet.ts";

const NAME = "cut";
const UNITS = 4;
/** Longer than two pings, and shorter than any presence. */
const SILENT_MS = 14_000;
/** The last of several node-units is lost by then: the third ping finds two missed ones, 15 s after the cut at most. */
const LOST_MS = 20_000;
/** Longer than any cut here: a child that stops has been stopped by a mistake. */
const SELF_STOP_MS = 90_000;
/** Generous: what is late on a busy machine is late everywhere, and without the repair it takes minutes. */
const SOON_MS = 40_000;

const HAZARDS = {
  brakes: ["cuts.units"],
  moved_nodes: ["cuts.stores"],
  kept_nodes: ["cuts.everything"],
  replaced_together: ["cuts.together"],
  healed: ["cuts.units", "cuts.stores", "cuts.everything", "cuts.together"],
};

const cutLoad: Workload = {
  name: NAME,
  promises: "I1 and I11 where packets are lost without a word",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: false,
  parties: [
    steadyUnits(NAME, { count: UNITS, env: { NODE_UNIT_SELF_STOP_MS: `${SELF_STOP_MS}` } }),
  ],
  load: (context) => loadSteadily(context, UNITS),
  async settle() {}, // every fault waits for peace itself
  hazards: HAZARDS,
  async read() {},
  check: (events: RecordedEvent[]) => checkSteady(events, Object.keys(HAZARDS)),
};

const fault = (name: string, act: OwnFault["act"]): OwnFault => ({
  card: { role: "cuts", fault: name, count: 1, lastsMs: [10_000, 10_000] },
  act,
});

export const cuts: Dimension = {
  name: "cuts",
  summary:
    "hosts whose packets are lost without a word, in network namespaces; the proxies' black holes where those are not allowed",
  workloads: [cutLoad],
  faults: ["cuts.*"],
  ownFaults: [
    fault("units", cutUnits),
    fault("stores", cutOneFromStores),
    fault("everything", cutAllFromStores),
    fault("together", cutTogether),
  ],
  pace: { gapMs: [500, 1_000] },
  seconds: 50,
  // The defaults: with the short times of the other worlds a node is lost before it notices that its instance is silent.
  world: {
    hosts: true,
    instanceEnv: {
      TENURE_SCHEDULER_PHASE2_PRESENCE_TTL_SECONDS: "15",
      TENURE_SCHEDULER_PHASE2_OWNER_TTL_SECONDS: "45",
      TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: "45",
    },
  },
};

/** Three of four node-units fall silent in one moment: the brake holds, and nothing is taken from them. */
async function cutUnits(world: World): Promise<void> {
  const scene = await begin(world, "three of four node-units are silent");
  if (!scene) return;
  const { history, before, what } = scene;
  const released = await countReleases(world);
  const heal = cut(unitsOf(world).slice(0, UNITS - 1), "all");
  const [url = ""] = urlsOf(world);
  const isBraked = async () => (await call(url, "/membership")).body.brake.active as boolean;
  await until(isBraked, { deadlineMs: LOST_MS, everyMs: 250, what: "the brake" }).then(
    () => recordMet(history, "brakes"),
    (error: Error) => recordProblem(history, `${what}: ${error.message}`),
  );
  await heal();
  await end(world, { history, before, what });
  const now = await countReleases(world);
  if (now > released)
    recordProblem(history, `${what}: ${now - released} deployments were released`);
}

/** One instance is cut off from the stores, the others are not: nodes go there, and nothing stops. */
async function cutOneFromStores(world: World): Promise<void> {
  const scene = await begin(world, "one instance is cut off from its stores");
  if (!scene) return;
  const { history, before, what } = scene;
  const [first, second = ""] = urlsOf(world);
  const heal = cut(world.instances.slice(0, 1), "stores");
  const areMoved = async () => {
    const { body } = await call(second, "/nodes?limit=500&online=true&node_unit=true");
    const { body: own } = await call(second, "/cluster");
    const others = (own.instances as { instance_id: string; url: string }[])
      .filter(({ url }) => url !== first)
      .map(({ instance_id }) => instance_id);
    const nodes = body.items as { instance_id: string; name: string }[];
    return nodes.filter(({ instance_id }) => others.includes(instance_id)).length === UNITS;
  };
  await until(areMoved, { deadlineMs: SOON_MS, everyMs: 250, what: "nodes to move" }).then(
    () => recordMet(history, "moved_nodes", UNITS),
    (error: Error) => recordProblem(history, `${what}: ${error.message}`),
  );
  await heal();
  await expectReady(first!, { history, what });
  await end(world, { history, before, what });
}

/** No instance reaches the stores: there is nowhere to go, and no node may be sent away. */
async function cutAllFromStores(world: World): Promise<void> {
  const scene = await begin(world, "all instances are cut off from their stores");
  if (!scene) return;
  const { history, before, what } = scene;
  const epochs = await epochsOf(world);
  const heal = cut(world.instances, "stores");
  await wait(SILENT_MS);
  await heal();
  for (const url of urlsOf(world)) await expectReady(url, { history, what });
  await end(world, { history, before, what });
  const again = [...(await epochsOf(world))].filter(([name, epoch]) => epochs.get(name) !== epoch);
  if (again.length === 0) recordMet(history, "kept_nodes", UNITS);
  else recordProblem(history, `${what}: ${again.length} nodes had to connect again`);
}

/** A node-unit and its instance fall silent in one moment: what it ran runs elsewhere. */
async function cutTogether(world: World): Promise<void> {
  const scene = await begin(world, "a node-unit and its instance are silent");
  if (!scene) return;
  const { history, before, what } = scene;
  const [, second = ""] = urlsOf(world);
  const { body } = await call(second, "/nodes?limit=500&online=true&node_unit=true");
  const nodes = body.items as { node_id: string; name: string }[];
  const unit = unitsOf(world).find(({ name }) =>
    before.some(
      (child) =>
        child.generation > 0 && child.address === nodes.find((n) => n.name === name)?.node_id,
    ),
  )!;
  const address = nodes.find(({ name }) => name === unit.name)?.node_id;
  const own = before.filter((child) => child.generation > 0 && child.address === address);
  const heal = cut([unit, world.instances[0]!], "all");
  const isElsewhere = async () => {
    const children = await childrenOf(second);
    return own.every(({ name }) =>
      children.some((child) => child.name === name && child.address !== address),
    );
  };
  await until(isElsewhere, {
    deadlineMs: SOON_MS,
    everyMs: 250,
    what: "its deployments elsewhere",
  }).then(
    () => recordMet(history, "replaced_together"),
    (error: Error) => recordProblem(history, `${what}: ${error.message}`),
  );
  await heal();
  // What was replaced is another child; the rest has nothing to do with it.
  await end(world, { history, before: before.filter((child) => !own.includes(child)), what });
}

interface Scene {
  history: HistoryRecorder;
  before: Child[];
  what: string;
}

async function begin(world: World, what: string): Promise<Scene | undefined> {
  const history = historyIn(world, NAME);
  const problems = await expectPeace(world, { prefix: NAME, history, after: `before ${what}` });
  const before = await childrenOf(urlsOf(world)[0]!);
  return problems.length === 0 ? { history, before, what } : undefined;
}

/** Everything works again, and what ran before still runs. */
async function end(world: World, { history, before, what }: Scene): Promise<void> {
  const after = `after ${what}`;
  const problems = await expectPeace(world, { prefix: NAME, history, after, deadlineMs: 60_000 });
  if (problems.length > 0) return;
  recordMet(history, "healed");
  const now = new Set((await childrenOf(urlsOf(world)[0]!)).map(keyOfChild));
  for (const child of before.map(keyOfChild))
    if (!now.has(child)) recordProblem(history, `${after}: ${child} does not run any more`);
}

async function expectReady(
  url: string,
  { history, what }: { history: HistoryRecorder; what: string },
): Promise<void> {
  const isReady = async () => {
    const { status } = await fetch(`${url}/health/ready`, { signal: AbortSignal.timeout(3_000) });
    return status === 200;
  };
  await until(isReady, { deadlineMs: 25_000, everyMs: 200, what: "ready after the heal" }).catch(
    (error: Error) => recordProblem(history, `${what}: ${error.message}`),
  );
}

const unitsOf = (world: World): Actor[] =>
  world.parties.filter(({ role }) => role === `${NAME}-unit`);

async function epochsOf(world: World): Promise<Map<string, string>> {
  return withClient(world.postgres.uri(), async (client) => {
    const { rows } = await client.query("select name, epoch from node_unit where online");
    return new Map(rows.map(({ name, epoch }) => [name as string, epoch as string]));
  });
}

async function countReleases(world: World): Promise<number> {
  return withClient(world.postgres.uri(), async (client) => {
    const text = "select count(*)::int as n from event where event = 'deployment.released'";
    return (await client.query(text)).rows[0].n as number;
  });
}

/** Silent from now on. Returns what ends it. */
function cut(actors: readonly Actor[], what: "all" | "stores"): () => Promise<void> {
  const links = actors.flatMap(({ host }) =>
    what === "stores" ? (host?.links.slice(0, 1) ?? []) : (host?.links ?? []),
  );
  // Where there are no hosts, their proxies swallow everything; connections stay open there too.
  const proxies = actors
    .filter(({ host }) => !host)
    .flatMap(({ lines: { postgres = [], redis = [], hosts = [], edge = [] } }) =>
      what === "stores" ? [...postgres, ...redis] : [...postgres, ...redis, ...hosts, ...edge],
    );
  for (const link of links) link.cut();
  for (const proxy of proxies) proxy.blackHole("both");
  return async () => {
    for (const link of links) link.heal();
    for (const proxy of proxies) await proxy.heal();
  };
}
