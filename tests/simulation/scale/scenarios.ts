import { createScaleFleet, type FleetOptions, rowsOf, type ScaleFleet } from "./fleet.ts";
import { since, type Tally } from "./tally.ts";

export interface Outcome {
  what: string;
  nodes: number;
  deployments: number;
  instances: number;
  /** `undefined`: not within the limit. */
  tookMs: number | undefined;
  /** How many rows had no owner when, for a plot. */
  progress: { ms: number; open: number }[];
  /** The most and the fewest that a node owns. */
  spread: number;
  tally: Tally;
  passes: number;
  /** Of the instance that had the most to do. */
  instanceBusyMs: number;
  instanceWaitMsMax: number;
  postgresBusyMs: number;
}

export type Told = (line: string) => void;

const LIMIT_MS = 3_600_000;
const LOOK_EVERY_MS = 250;
const TOLD_EVERY_MS = 10_000;
/** The fleet has read its list and is quiet. */
const REST_MS = 10_000;
const MINUTE_MS = 60_000;

/** All deployments appear at once, and no node has any. */
export async function converge(options: FleetOptions, told: Told = () => {}): Promise<Outcome> {
  const fleet = createScaleFleet(options, "empty");
  await fleet.timeline.run(REST_MS);
  return measured("converge from empty", options, fleet, told, () =>
    fleet.server.add(rowsOf(options.deployments, () => "")),
  );
}

/** Every node has its share; then some are killed. */
export async function failOver(
  options: FleetOptions,
  lost: number,
  told: Told = () => {},
): Promise<Outcome> {
  const fleet = createScaleFleet(options, "owned");
  await fleet.timeline.run(REST_MS);
  const what = lost === 1 ? "lose 1 node" : `lose ${lost.toLocaleString("en")} nodes`;
  return measured(what, options, fleet, told, () => fleet.lose(lost));
}

/** Every node has its share, and nothing happens. */
export async function restOneMinute(options: FleetOptions): Promise<Outcome> {
  const fleet = createScaleFleet(options, "owned");
  await fleet.timeline.run(REST_MS);
  const begun = beginMeasure(fleet);
  await fleet.timeline.run(REST_MS + MINUTE_MS);
  return { ...ended("a minute at rest", options, fleet, begun), tookMs: MINUTE_MS, progress: [] };
}

async function measured(
  what: string,
  options: FleetOptions,
  fleet: ScaleFleet,
  told: Told,
  act: () => void,
): Promise<Outcome> {
  const { timeline } = fleet;
  const begun = beginMeasure(fleet);
  act();
  const open = () => withoutOwner(fleet);
  const isDone = () => isAllOwned(fleet);
  const progress = [{ ms: 0, open: open() }];
  const passedMs = () => timeline.monotonicMs() - begun.atMs;
  for (let toldMs = 0; !isDone() && passedMs() < LIMIT_MS; ) {
    await timeline.run(timeline.monotonicMs() + LOOK_EVERY_MS, isDone);
    progress.push({ ms: passedMs(), open: open() });
    if (passedMs() - toldMs < TOLD_EVERY_MS) continue;
    toldMs = passedMs();
    told(`${what}: ${(toldMs / 1_000).toFixed(0)} s, ${open()} without an owner`);
  }
  const tookMs = isDone() ? passedMs() : undefined;
  return { ...ended(what, options, fleet, begun), tookMs, progress };
}

/** Free, or of a node that is gone. */
const withoutOwner = ({ table, gone }: ScaleFleet): number =>
  gone().reduce((sum, address) => sum + table.countOf(address), table.free());

/** Asked after every event, so it ends at the first that is not. */
const isAllOwned = ({ table, gone }: ScaleFleet): boolean =>
  table.free() === 0 && gone().every((address) => table.countOf(address) === 0);

interface Begun {
  atMs: number;
  tally: Tally;
  passes: number;
}

function beginMeasure({ timeline, tally, passes, server }: ScaleFleet): Begun {
  for (const queue of [server.postgres, ...server.instances]) queue.reset();
  return { atMs: timeline.monotonicMs(), tally: { ...tally }, passes };
}

function ended(
  what: string,
  { nodes, deployments, instances }: FleetOptions,
  { addresses, table, tally, passes, server }: ScaleFleet,
  begun: Begun,
): Omit<Outcome, "tookMs" | "progress"> {
  const counts = addresses().map(table.countOf);
  return {
    ...{ what, nodes, deployments, instances },
    spread: Math.max(...counts) - Math.min(...counts),
    tally: since(begun.tally, tally),
    passes: passes - begun.passes,
    instanceBusyMs: Math.max(...server.instances.map(({ busyMs }) => busyMs)),
    instanceWaitMsMax: Math.max(...server.instances.map(({ waitMsMax }) => waitMsMax)),
    postgresBusyMs: server.postgres.busyMs,
  };
}
