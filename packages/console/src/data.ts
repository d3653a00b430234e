import { effect, signal } from "@preact/signals";
import type { DeploymentView, NodeView, Principal, Stats } from "@tenure/protocol";
import { call, whenSignedOut } from "./api.ts";
import { compareClocks } from "./clock.ts";
import { onChange, startLive, stopLive } from "./live.ts";
import { createCollection, createResource } from "./resource.ts";

/** `undefined` until the server has said who this is; `null`: it does not know, a token is needed. */
export const me = signal<Principal | null | undefined>(undefined);
export const isAdmin = (): boolean => me.value?.role === "admin";

const POINTS_MAX = 180;
const PAGE_LIMIT = 500;
const POLL_MS = 10_000;

export const stats = createResource({ read: readStats, everyMs: 60_000 });
export const cluster = createResource({
  read: () => call("readCluster", {}),
  everyMs: POLL_MS,
  topics: ["cluster"],
});
export const membership = createResource({
  read: () => call("readMembership", {}),
  everyMs: POLL_MS,
  topics: ["events"],
  isAbout: ({ item }) => /^(brake|node)\./.test((item as { event?: string })?.event ?? ""),
});

export const nodes = createCollection<NodeView>({
  topic: "nodes",
  keyOf: ({ node_id }) => node_id,
  page: (cursor) => call("listNodes", { query: { limit: PAGE_LIMIT, cursor } }),
});
export const deployments = createCollection<DeploymentView>({
  topic: "deployments",
  keyOf: ({ id }) => id,
  page: (cursor) => call("listDeployments", { query: { limit: PAGE_LIMIT, cursor } }),
  readOne: (id) => call("readDeployment", { params: { id } }),
});

async function readStats(): Promise<Stats> {
  const read = await call("readStats", {});
  compareClocks(read.at);
  return read;
}

// The stream brings the newest interval alone; the ones before are here.
onChange("stats", ({ item }) => {
  const told = item as Stats;
  const known = stats.state.value.value;
  // Another instance's numbers would continue this one's lines where they do not belong.
  if (!known || known.instance_id !== told.instance_id) return;
  compareClocks(told.at);
  const newer = told.points.filter(({ at }) => at > (known.points.at(-1)?.at ?? ""));
  stats.set({ ...told, points: [...known.points, ...newer].slice(-POINTS_MAX) });
});

/**
 * Who is there. Nodes change all the time, by their load; this only when one comes or goes, so that what depends on it
 * alone is not worked out again for every sample.
 */
export const online = signal<ReadonlySet<string> | undefined>(undefined);
effect(() => {
  const { rows, isComplete } = nodes.state.value;
  if (!isComplete) return;
  const there = new Set(
    [...rows.values()].filter((node) => node.online).map((node) => node.node_id),
  );
  const known = online.peek();
  if (known?.size !== there.size || [...there].some((id) => !known.has(id))) online.value = there;
});

/** While the list is not read, every node is taken as there. */
export const isOnline = (address: string): boolean => online.value?.has(address) ?? true;

export function nodeName(address: string): string | undefined {
  return nodes.state.value.rows.get(address)?.name;
}

export async function findOutWhoIAm(): Promise<void> {
  try {
    const code = takeSignInCode();
    if (code !== undefined && (await redeem(code))) return;
    enter(await call("readPrincipal", {}));
  } catch (error) {
    if (me.value === null) return; // The server answered, and does not know.
    throw error;
  }
}

/** The link that `tenure dev` prints ends in `#code=…`, which works once. Browsers send no part after `#`. */
function takeSignInCode(): string | undefined {
  const { hash, pathname, search } = window.location;
  const code = /^#code=([\w-]+)$/.exec(hash)?.[1];
  if (code !== undefined) window.history.replaceState(null, "", pathname + search);
  return code;
}

/** A code that was used before is no error: the cookie of that time may still be good. */
async function redeem(code: string): Promise<boolean> {
  try {
    await signIn(code);
    return true;
  } catch {
    return false;
  }
}

export async function signIn(token: string): Promise<void> {
  enter(await call("login", { body: { token } }));
}

export async function signOut(): Promise<void> {
  await call("logout", {});
  leave();
}

function enter(principal: Principal): void {
  me.value = principal;
  startLive();
}

/** Nothing of what one person saw is left for the next. */
function leave(): void {
  stopLive();
  for (const resource of [stats, cluster, membership]) resource.forget();
  for (const collection of [nodes, deployments]) collection.forget();
  me.value = null;
}

whenSignedOut(leave);
