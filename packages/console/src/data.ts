import { effect, signal } from "@preact/signals";
import type { DeploymentView, NodeView, Principal, Stats } from "@tenure/protocol";
import { call, whenSignedOut } from "./api.ts";
import { syncClock } from "./clock.ts";
import { onChange, startLive, stopLive } from "./live.ts";
import { createCollection, createResource } from "./resource.ts";

/** The signed-in principal; `undefined` while unknown, `null` if a sign-in is needed. */
export const me = signal<Principal | null | undefined>(undefined);
export const isAdmin = (): boolean => me.value?.role === "admin";
export const isOfAllTenants = (): boolean => me.value?.tenant === "*";

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
  syncClock(read.at);
  return read;
}

// The stream carries only the newest interval; earlier ones are kept here.
onChange("stats", ({ item }) => {
  const update = item as Stats;
  const known = stats.state.value.value;
  // Statistics of another instance do not continue these lines.
  if (!known || known.instance_id !== update.instance_id) return;
  syncClock(update.at);
  const newer = update.points.filter(({ at }) => at > (known.points.at(-1)?.at ?? ""));
  stats.set({ ...update, points: [...known.points, ...newer].slice(-POINTS_MAX) });
});

/**
 * Addresses of the online nodes. Changes only when a node joins or leaves, not with every load sample, so that dependent
 * values are not recomputed.
 */
export const online = signal<ReadonlySet<string> | undefined>(undefined);
effect(() => {
  const { rows, isComplete } = nodes.state.value;
  if (!isComplete) return;
  const current = new Set(
    [...rows.values()].filter((node) => node.online).map((node) => node.node_id),
  );
  const known = online.peek();
  if (known?.size !== current.size || [...current].some((id) => !known.has(id)))
    online.value = current;
});

/** Until the list is read, every node counts as online. */
export const isOnline = (address: string): boolean => online.value?.has(address) ?? true;

export function nodeName(address: string): string | undefined {
  return nodes.state.value.rows.get(address)?.name;
}

export async function restoreSession(): Promise<void> {
  try {
    const code = takeSignInCode();
    if (code !== undefined && (await redeem(code))) return;
    enter(await call("readPrincipal", {}));
  } catch (error) {
    if (me.value === null) return; // Not signed in.
    throw error;
  }
}

/** Reads the one-time code of the link that `tenure dev` prints (`#code=…`). Browsers do not send the part after `#`. */
function takeSignInCode(): string | undefined {
  const { hash, pathname, search } = window.location;
  const code = /^#code=([\w-]+)$/.exec(hash)?.[1];
  if (code !== undefined) window.history.replaceState(null, "", pathname + search);
  return code;
}

/** A used code is not an error: the cookie of the first sign-in may still be valid. */
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

/** Clears all data of the signed-in user. */
function leave(): void {
  stopLive();
  for (const resource of [stats, cluster, membership]) resource.forget();
  for (const collection of [nodes, deployments]) collection.forget();
  me.value = null;
}

whenSignedOut(leave);
