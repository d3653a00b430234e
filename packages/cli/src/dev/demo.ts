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
const LOOK_EVERY_MS = 200;
/** A machine that needs longer than this gets the table as it is then. */
const SHOW_WITHIN_MS = 90_000;

export interface Demo {
  stop(): Promise<void>;
}

/** Two node-units, a handful of deployments and a session on a server that was just started, and what runs where. */
export function startDemo(options: {
  url: string;
  dataDir: string;
  /** The umask that the node-units start with. */
  unitUmask: number;
  /** `undefined`: the operator has set tokens, or the server needs none. */
  access: DevAccess | undefined;
  print: (text: string) => void;
}): Demo {
  const stopping = new AbortController();
  const units: DemoUnit[] = [];
  let jobs: DemoJobs | undefined;
  const { token } = options.access ?? {};
  const given = { url: options.url, ...(token !== undefined && { token }) };
  const done = run().catch(giveUp);

  function giveUp(error: unknown): void {
    if (!stopping.signal.aborted)
      options.print(
        `the demo could not be shown: ${error instanceof Error ? error.message : error}`,
      );
  }

  async function run(): Promise<void> {
    const admin = createAdmin(given);
    if (!(await isOpen(admin))) return;
    const desired = parseDesired(readFileSync(FILE, "utf8")).map((one) => withExamples(one, token));
    await rest(admin, desired);
    for (const name of NAMES) {
      if (stopping.signal.aborted) return;
      units.push(startDemoUnit({ name, ...options }));
    }
    // By the list that the node-units decide by: one that saw only itself would take everything.
    await until(async () => {
      const { members } = await admin.call(ROUTES.readMembership, {});
      return members.length >= units.length;
    });
    await wake(admin, desired);
    // A drain may have begun one more move before it was ended.
    const allRun = async () =>
      (await demoOf(admin, desired)).every((view) => isRunning(view) && view.moving_to === "");
    await until(allRun);
    await evenOut(admin, desired);
    await until(allRun);
    jobs = startDemoJobs(given);
    options.print(drawDemo(await scene(admin, desired)));
    for (const unit of units) tellLoss(unit).catch(giveUp);

    async function tellLoss(unit: DemoUnit): Promise<void> {
      const end = await unit.exited;
      if (stopping.signal.aborted) return;
      const sent = jobs?.seen().sent ?? 0;
      const isSettled = ({ answered, failed }: JobsSeen) => answered + failed >= sent;
      await until(async () => {
        if (jobs && !isSettled(jobs.seen())) return false;
        const left = await here(admin);
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
   * A former run may have left one node-unit with most of the demo. Draining that one moves them in good order, one
   * after another; it claims again as soon as both have their share.
   */
  async function evenOut(admin: Admin, desired: readonly Desired[]): Promise<void> {
    const nodes = await here(admin);
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
    const [views, nodes] = await Promise.all([demoOf(admin, desired), here(admin)]);
    return { url: options.url, views, nodes, units, jobs: jobs?.seen() };
  }

  async function until(condition: () => Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + SHOW_WITHIN_MS;
    while (!stopping.signal.aborted && performance.now() < deadlineMs) {
      if (await condition()) return;
      await wait(LOOK_EVERY_MS, undefined, { signal: stopping.signal, ref: false });
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

/** A child starts in a directory of its own and with nothing of our environment: it is told where its program is. */
function withExamples(desired: Desired, token: string | undefined): Desired {
  if (!desired.command?.includes("$EXAMPLES")) return desired;
  const access = token === undefined ? {} : { TENURE_TOKEN: token };
  return { ...desired, env: { ...desired.env, EXAMPLES, NODE: process.execPath, ...access } };
}

/** With the token of `tenure dev`, or without any. Where an operator has set tokens, the demo cannot start node-units. */
async function isOpen(admin: Admin): Promise<boolean> {
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
 * Disables what a former run left until both node-units are there: the first one would release and claim everything
 * the other owned, and what runs is never moved only to be even.
 */
async function rest(admin: Admin, desired: readonly Desired[]): Promise<void> {
  for (const { id } of await demoOf(admin, desired))
    await admin.call(ROUTES.updateDeployment, { params: { id }, body: { enabled: false } });
}

interface Share {
  node_id: string;
  owned: number;
}

/** How many deployments of the demo each node-unit owns, least first. */
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

async function wake(admin: Admin, desired: readonly Desired[]): Promise<void> {
  const former = new Map((await demoOf(admin, desired)).map((view) => [view.name, view]));
  for (const { name, ...spec } of desired) {
    const body = { ...spec, enabled: true };
    const known = former.get(name);
    if (known) await admin.call(ROUTES.updateDeployment, { params: { id: known.id }, body });
    else await admin.call(ROUTES.createDeployment, { body: { ...body, name } as DeploymentCreate });
  }
}

async function demoOf(admin: Admin, desired: readonly Desired[]): Promise<DeploymentView[]> {
  const names = new Set(desired.map(({ name }) => name));
  const { items } = await admin.call(ROUTES.listDeployments, { query: { limit: 500 } });
  return items.filter(({ name }) => names.has(name));
}

async function here(admin: Admin): Promise<NodeView[]> {
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
