import type { ListedDeployment } from "@tenure/protocol";
import type { Costs } from "./costs.ts";
import { createScaleFleet, type FleetOptions, type ScaleFleet, type Tally } from "./fleet.ts";

export interface Size {
  nodes: number;
  deployments: number;
  instances: number;
  seed: number;
  costs: Costs;
}

export interface Outcome {
  what: string;
  size: Size;
  /** `undefined`: not within the limit. */
  tookMs: number | undefined;
  /** When how many rows had an owner, for a plot. */
  progress: { ms: number; owned: number }[];
  spread: number;
  tally: Tally;
  passes: number;
  listsPerSecondMax: number;
  instanceBusyMs: number;
  instanceWaitMsMax: number;
  postgresBusyMs: number;
}

const LIMIT_MS = 3_600_000;
const LOOK_EVERY_MS = 250;
/** The fleet has looked at its empty list and is quiet. */
const REST_MS = 10_000;

/** All deployments appear at once, and no node has any. */
export async function converge(size: Size, told: (line: string) => void): Promise<Outcome> {
  const fleet = createScaleFleet(size);
  await fleet.timeline.run(REST_MS);
  const { begin, end } = measure("converge", size, fleet, told);
  begin();
  fleet.add(rowsOf(size.deployments, () => ""));
  return end();
}

/** Every node has its share; then some are killed. */
export async function failOver(
  size: Size,
  lost: number,
  told: (line: string) => void,
): Promise<Outcome> {
  const fleet = createScaleFleet(size);
  const addresses = fleet.addresses();
  fleet.assign(rowsOf(size.deployments, (nth) => addresses[nth % addresses.length]!));
  // Everybody reads the list once, which takes what it takes and is not what is asked here.
  await fleet.timeline.run(LIMIT_MS, () => isRead(fleet));
  await fleet.timeline.run(fleet.timeline.monotonicMs() + REST_MS);
  const { begin, end } = measure(`lose ${lost}`, size, fleet, told);
  begin();
  fleet.lose(addresses.slice(0, lost));
  return end(addresses.slice(0, lost));
}

function isRead(fleet: ScaleFleet): boolean {
  return fleet.tally.listRows >= fleet.addresses().length * fleet.table.head();
}

function measure(
  what: string,
  size: FleetOptions,
  fleet: ScaleFleet,
  told: (line: string) => void,
) {
  const { timeline, table, tally } = fleet;
  let before = { ...tally };
  let passes = 0;
  let startMs = 0;
  const busiest = () => Math.max(...fleet.instances.map(({ cpu }) => cpu.busyMs));

  return {
    begin() {
      before = { ...tally };
      passes = fleet.passes;
      startMs = timeline.monotonicMs();
      for (const queue of [fleet.postgres, ...fleet.instances.map(({ cpu }) => cpu)]) queue.reset();
    },
    async end(lost: readonly string[] = []): Promise<Outcome> {
      const progress: Outcome["progress"] = [];
      const open = () =>
        table.free() + lost.reduce((sum, address) => sum + table.countOf(address), 0);
      const isDone = () => open() === 0;
      let nextTold = 0;
      while (!isDone() && timeline.monotonicMs() - startMs < LIMIT_MS) {
        await timeline.run(timeline.monotonicMs() + LOOK_EVERY_MS, isDone);
        const ms = timeline.monotonicMs() - startMs;
        progress.push({ ms, owned: size.deployments - open() });
        if (performance.now() < nextTold) continue;
        nextTold = performance.now() + 10_000;
        told(
          `${what}: ${(ms / 1_000).toFixed(1)} s, ${open()} without an owner, ${timeline.steps} steps`,
        );
      }
      const took = timeline.monotonicMs() - startMs;
      const counts = fleet
        .addresses()
        .filter((address) => !lost.includes(address))
        .map((address) => table.countOf(address));
      const seconds = fleet.listsBySecond.slice(Math.floor(startMs / 1_000));
      return {
        what,
        size,
        tookMs: isDone() ? took : undefined,
        progress,
        spread: Math.max(...counts) - Math.min(...counts),
        tally: difference(tally, before),
        passes: fleet.passes - passes,
        listsPerSecondMax: Math.max(...seconds.map((lists) => lists ?? 0)),
        instanceBusyMs: busiest(),
        instanceWaitMsMax: Math.max(...fleet.instances.map(({ cpu }) => cpu.waitMsMax)),
        postgresBusyMs: fleet.postgres.busyMs,
      };
    },
  };
}

const difference = (after: Tally, before: Tally): Tally =>
  Object.fromEntries(
    Object.entries(after).map(([name, count]) => [name, count - before[name as keyof Tally]]),
  ) as unknown as Tally;

export function rowsOf(count: number, ownerOf: (nth: number) => string): ListedDeployment[] {
  return Array.from({ length: count }, (_, nth) => ({
    id: `00000000-0000-4000-8000-${String(nth).padStart(12, "0")}`,
    ...{ name: `deployment-${nth}`, package_name: "web", package_version: "1.0.0", command: "" },
    ...{ type: "deployment", address: ownerOf(nth), enabled: true, selector: {} },
    ...{ lost_after_ms: 0, generation: 1, revision: 1, moving_to: "", move_state: "" },
    created_at: "2023-01-01T00:00:00.000Z",
    updated_at: "2023-01-01T00:00:00.000Z",
  }));
}
