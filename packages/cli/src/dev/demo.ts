import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { DeploymentCreate, DeploymentView, NodeView } from "@tenure/protocol";
import { type Admin, createAdmin, ROUTES, TenureError } from "@tenure/sdk";
import { type Desired, parseDesired } from "../deployment/desired.ts";
import type { DevAccess } from "./access.ts";
import { drawDemo, drawLoss, EXAMPLES } from "./draw.ts";
import { type DemoJobs, type JobsSeen, startDemoJobs } from "./jobs.ts";
import { type DemoUnit, startDemoUnit } from "./units.ts";

const FILE = join(EXAMPLES, "demo/deployments.yaml");
const NAMES = ["alpha", "bravo"] as const;
const POLL_EVERY_MS = 200;
/** After this time the table is shown even if not everything runs. */
const SHOW_WITHIN_MS = 90_000;

export interface Demo {
  stop(): Promise<void>;
}

/** Starts two node-units, sample deployments and a session on a new server, and shows what runs where. */
export function startDemo(options: {
  url: string;
  dataDir: string;
  /** The umask that the node-units start with. */
  unitUmask: number;
  /** `undefined` if the operator configured tokens or the server needs none. */
  access: DevAccess | undefined;
  print: (text: string) => void;
}): Demo {
  const stopping = new AbortController();
  const units: DemoUnit[] = [];
  let jobs: DemoJobs | undefined;
  const { token } = options.access ?? {};
  const given = { url: options.url, ...(token !== undefined && { token }) };
  const done = run().catch(reportFailure);

  function reportFailure(error: unknown): void {
    if (!stopping.signal.aborted)
      options.print(`the demo failed: ${error instanceof Error ? error.message : error}`);
  }

  async function run(): Promise<void> {
    const admin = createAdmin(given);
    if (!(await isAllowed(admin))) return;
    const desired = parseDesired(readFileSync(FILE, "utf8")).map((one) => withExamples(one, token));
    await disableAll(admin, desired);
    for (const name of NAMES) {
      if (stopping.signal.aborted) return;
      units.push(startDemoUnit({ name, ...options }));
    }
    // Wait for the list that node-units plan with: a node-unit that sees only itself would claim everything.
    await until(async () => {
      const { members } = await admin.call(ROUTES.readMembership, {});
      return members.length >= units.length;
    });
    await enableAll(admin, desired);
    // A drain may have started one more move before it ended.
    const allRun = async () =>
      (await demoOf(admin, desired)).every((view) => isRunning(view) && view.moving_to === "");
    await until(allRun);
    await evenOut(admin, desired);
    await until(allRun);
    jobs = startDemoJobs(given);
    options.print(drawDemo(await scene(admin, desired)));
    for (const unit of units) reportLoss(unit).catch(reportFailure);

    async function reportLoss(unit: DemoUnit): Promise<void> {
      const end = await unit.exited;
      if (stopping.signal.aborted) return;
      const sent = jobs?.seen().sent ?? 0;
      const isComplete = ({ answered, failed }: JobsSeen) => answered + failed >= sent;
      await until(async () => {
        if (jobs && !isComplete(jobs.seen())) return false;
        const left = await presentUnits(admin);
        const views = await demoOf(admin, desired);
        const isThere = ({ address }: DeploymentView) =>
          left.some(({ node_id, name }) => node_id === address && name !== unit.name);
        return views.every((view) => view.type === "daemon" || (isThere(view) && isRunning(view)));
      });
      if (!stopping.signal.aborted)
        options.print(drawLoss({ unit, end, ...(await scene(admin, desired)) }));
    }
  }

  /**
   * Balances the demo after an earlier run that left most of it on one node-unit: drains that node-unit until both own
   * the same number.
   */
  async function evenOut(admin: Admin, desired: readonly Desired[]): Promise<void> {
    const nodes = await presentUnits(admin);
    if (nodes.some(({ draining }) => draining)) return;
    const before = await shares(admin, desired, nodes);
    const most = before.at(-1);
    if (!most || isEven(before)) return;
    const params = { id: most.node_id };
    await admin.call(ROUTES.drainNode, { params });
    try {
      await until(async () => isEven(await shares(admin, desired, nodes)));
    } finally {
      await admin.call(ROUTES.resumeNode, { params });
    }
  }

  async function scene(admin: Admin, desired: readonly Desired[]) {
    const [views, nodes] = await Promise.all([demoOf(admin, desired), presentUnits(admin)]);
    return { url: options.url, views, nodes, units, jobs: jobs?.seen() };
  }

  async function until(condition: () => Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + SHOW_WITHIN_MS;
    while (!stopping.signal.aborted && performance.now() < deadlineMs) {
      if (await condition()) return;
      await wait(POLL_EVERY_MS, undefined, { signal: stopping.signal, ref: false });
    }
  }

  return {
    async stop() {
      stopping.abort();
      await jobs?.stop();
      await Promise.all(units.map((unit) => unit.stop()));
      await done;
    },
  };
}

/** Passes the path of the examples: a child has its own directory and not our environment. */
function withExamples(desired: Desired, token: string | undefined): Desired {
  if (!desired.command?.includes("$EXAMPLES")) return desired;
  const access = token === undefined ? {} : { TENURE_TOKEN: token };
  return { ...desired, env: { ...desired.env, EXAMPLES, NODE: process.execPath, ...access } };
}

/** Whether the demo has access. It has none if the operator configured tokens. */
async function isAllowed(admin: Admin): Promise<boolean> {
  try {
    await admin.call(ROUTES.listNodes, { query: { limit: 1 } });
    return true;
  } catch (error) {
    if (error instanceof TenureError && ["UNAUTHENTICATED", "FORBIDDEN"].includes(error.code))
      return false;
    throw error;
  }
}

/**
 * Disables the demo deployments of an earlier run until both node-units are present. Otherwise the first node-unit would
 * claim everything, and running deployments are never rebalanced.
 */
async function disableAll(admin: Admin, desired: readonly Desired[]): Promise<void> {
  for (const { id } of await demoOf(admin, desired))
    await admin.call(ROUTES.updateDeployment, { params: { id }, body: { enabled: false } });
}

interface Share {
  node_id: string;
  owned: number;
}

/** Number of demo deployments per node-unit, in ascending order. */
async function shares(
  admin: Admin,
  desired: readonly Desired[],
  nodes: readonly NodeView[],
): Promise<Share[]> {
  const views = await demoOf(admin, desired);
  const ownedBy = (node: string) => views.filter(({ address }) => address === node).length;
  return nodes
    .map(({ node_id }) => ({ node_id, owned: ownedBy(node_id) }))
    .sort((a, b) => a.owned - b.owned);
}

const isEven = (sorted: readonly Share[]): boolean =>
  (sorted.at(-1)?.owned ?? 0) - (sorted[0]?.owned ?? 0) <= 1;

async function enableAll(admin: Admin, desired: readonly Desired[]): Promise<void> {
  const existing = new Map((await demoOf(admin, desired)).map((view) => [view.name, view]));
  for (const { name, ...spec } of desired) {
    const body = { ...spec, enabled: true };
    const known = existing.get(name);
    if (known) await admin.call(ROUTES.updateDeployment, { params: { id: known.id }, body });
    else await admin.call(ROUTES.createDeployment, { body: { ...body, name } as DeploymentCreate });
  }
}

async function demoOf(admin: Admin, desired: readonly Desired[]): Promise<DeploymentView[]> {
  const names = new Set(desired.map(({ name }) => name));
  const { items } = await admin.call(ROUTES.listDeployments, { query: { limit: 500 } });
  return items.filter(({ name }) => names.has(name));
}

async function presentUnits(admin: Admin): Promise<NodeView[]> {
  const { items } = await admin.call(ROUTES.listNodes, { query: { online: true, limit: 500 } });
  return items.filter(({ node_unit }) => node_unit);
}

const isRunning = (view: DeploymentView): boolean => {
  const running = view.status.filter(
    ({ state, generation }) => state === "running" && generation === view.generation,
  );
  return view.type === "daemon"
    ? running.length >= NAMES.length
    : running.some(({ address }) => address === view.address);
};
