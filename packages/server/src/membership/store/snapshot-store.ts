import {
  Capacity,
  ClaimPolicyName,
  Count,
  Labels,
  NodeAddress,
  Pools,
  ResourceUsage,
  Services,
  Tags,
  Tenants,
} from "@tenure/protocol";
import * as z from "zod";
import {
  addMembersCommand,
  getCommand,
  readMembersCommand,
  removeMembersCommand,
} from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";

export const snapshotKeys = {
  all: (prefix: string) => `${prefix}:v1:nodes:all`,
  /** Nodes that are no node-units and should get nothing new. Node-units have a column for it. */
  draining: (prefix: string) => `${prefix}:v1:nodes:draining`,
  presence: (prefix: string, nodeId: string) => `${prefix}:v1:nodes:presence:${nodeId}`,
  snapshot: (prefix: string, nodeId: string) => `${prefix}:v1:nodes:snapshot:${nodeId}`,
};

/** What every instance knows of a node, wherever it is connected. */
export const NodeSnapshot = z.object({
  v: z.literal(1),
  node_id: NodeAddress,
  name: z.string(),
  version: z.string(),
  instance_id: z.string(),
  boot_id: z.string(),
  epoch: z.int(),
  tags: Tags,
  labels: Labels,
  /** Absent: written by an instance of 0.1.0. */
  tenants: Tenants.optional(),
  pools: Pools,
  services: Services,
  capacity: Capacity,
  stuck: Count.optional(),
  draining: z.boolean(),
  claim_policy: ClaimPolicyName,
  trusted_package_regexp: z.string(),
  custom_command: z.boolean(),
  resource_usage: ResourceUsage.nullable(),
  joined_at: z.string(),
});
export type NodeSnapshot = z.infer<typeof NodeSnapshot>;

const writeScript = defineScript({
  file: new URL("./lua/write-snapshot.lua", import.meta.url),
  keys: ["snapshot"],
  args: z.object({ epoch: z.int(), snapshot: z.string(), ttl_ms: z.int().positive() }),
  reply: z.union([z.tuple([z.literal("written")]), z.tuple([z.literal("newer")])]),
}).inMemory((space, { snapshot }, args) => {
  const held = space.get(snapshot);
  if (held && epochOf(held) > args.epoch) return ["newer"];
  space.set(snapshot, args.snapshot, args.ttl_ms);
  return ["written"];
});

const dropScript = defineScript({
  file: new URL("./lua/drop-snapshot.lua", import.meta.url),
  keys: ["snapshot"],
  args: z.object({ epoch: z.int() }),
  reply: z.union([z.tuple([z.literal("dropped")]), z.tuple([z.literal("not_ours")])]),
}).inMemory((space, { snapshot }, { epoch }) => {
  const held = space.get(snapshot);
  if (!held || epochOf(held) !== epoch) return ["not_ours"];
  space.delete(snapshot);
  return ["dropped"];
});

const markPresentScript = defineScript({
  file: new URL("./lua/mark-present.lua", import.meta.url),
  keys: ["presence"],
  args: z.object({ boot_id: z.string(), epoch: z.int(), ttl_ms: z.int().positive() }),
  reply: z.union([z.tuple([z.literal("present")]), z.tuple([z.literal("newer"), z.string()])]),
}).inMemory((space, { presence }, { boot_id, epoch, ttl_ms }) => {
  const held = parsePresence(space.get(presence));
  if (held && held.epoch > epoch) return ["newer", held.bootId];
  space.set(presence, `${boot_id}:${epoch}`, ttl_ms);
  return ["present"];
});

const dropPresentScript = defineScript({
  file: new URL("./lua/drop-present.lua", import.meta.url),
  keys: ["presence"],
  args: z.object({ epoch: z.int() }),
  reply: z.union([z.tuple([z.literal("dropped")]), z.tuple([z.literal("not_ours")])]),
}).inMemory((space, { presence }, { epoch }) => {
  if (parsePresence(space.get(presence))?.epoch !== epoch) return ["not_ours"];
  space.delete(presence);
  return ["dropped"];
});

const readText = getCommand("read-snapshot");
const readPresenceText = getCommand("read-present");
const listNodes = addMembersCommand("list-node");
const readListed = readMembersCommand("read-listed");
const unlistNodes = removeMembersCommand("unlist-node");

/** `false`: a newer connection of this node has written, and this one is replaced. */
export async function writeSnapshot(
  hot: HotStore,
  snapshot: NodeSnapshot,
  ttlMs: number,
): Promise<boolean> {
  const { node_id, boot_id, epoch } = snapshot;
  const presence = snapshotKeys.presence(hot.prefix, node_id);
  const key = snapshotKeys.snapshot(hot.prefix, node_id);
  const term = { epoch, ttl_ms: ttlMs };
  const [present, written] = await Promise.all([
    hot.run(markPresentScript, { presence }, { ...term, boot_id }),
    hot.run(writeScript, { snapshot: key }, { ...term, snapshot: JSON.stringify(snapshot) }),
    listNodes(hot, snapshotKeys.all(hot.prefix), [node_id]),
  ]);
  return present[0] !== "newer" && written[0] !== "newer";
}

export async function dropSnapshot(
  hot: HotStore,
  { nodeId, epoch }: { nodeId: string; epoch: number },
): Promise<void> {
  await Promise.all([
    hot.run(dropPresentScript, { presence: snapshotKeys.presence(hot.prefix, nodeId) }, { epoch }),
    hot.run(dropScript, { snapshot: snapshotKeys.snapshot(hot.prefix, nodeId) }, { epoch }),
  ]);
}

/** Which process answers under this address now, by the hot state. */
export async function readPresence(
  hot: HotStore,
  nodeId: string,
): Promise<{ bootId: string; epoch: number } | undefined> {
  return parsePresence(await readPresenceText(hot, snapshotKeys.presence(hot.prefix, nodeId)));
}

/** Reads the snapshots of all present nodes again and again. A text that has not changed since the last read is not parsed again. */
export class SnapshotReader {
  readonly #hot: HotStore;
  #known = new Map<string, { text: string; snapshot: NodeSnapshot | undefined }>();

  constructor(hot: HotStore) {
    this.#hot = hot;
  }

  /** Those that `isWanted`. A snapshot of a newer version that cannot be read is left out. */
  async read(isWanted: (nodeId: string) => boolean = () => true): Promise<NodeSnapshot[]> {
    const hot = this.#hot;
    const nodes = (await readListed(hot, snapshotKeys.all(hot.prefix))).filter(isWanted);
    const texts = await Promise.all(
      nodes.map((node) => readText(hot, snapshotKeys.snapshot(hot.prefix, node))),
    );
    const former = this.#known;
    this.#known = new Map();
    for (const [index, node] of nodes.entries()) {
      const text = texts[index];
      if (!text) continue;
      const known = former.get(node);
      const isKnown = known?.text === text;
      this.#known.set(node, isKnown ? known : { text, snapshot: parseSnapshot(text) });
    }
    return [...this.#known.values()].flatMap(({ snapshot }) => snapshot ?? []);
  }
}

/** Deletes nodes that were not seen for long. */
export async function forgetNodes(hot: HotStore, nodes: string[]): Promise<void> {
  if (nodes.length === 0) return;
  await unlistNodes(hot, snapshotKeys.all(hot.prefix), nodes);
  await unlistNodes(hot, snapshotKeys.draining(hot.prefix), nodes);
}

export async function markDraining(
  hot: HotStore,
  nodeId: string,
  draining: boolean,
): Promise<void> {
  const change = draining ? listNodes : unlistNodes;
  await change(hot, snapshotKeys.draining(hot.prefix), [nodeId]);
}

export async function readDraining(hot: HotStore): Promise<Set<string>> {
  return new Set(await readListed(hot, snapshotKeys.draining(hot.prefix)));
}

const parseSnapshot = (text: string): NodeSnapshot | undefined =>
  NodeSnapshot.safeParse(JSON.parse(text)).data;

const epochOf = (snapshot: string): number => (JSON.parse(snapshot) as { epoch: number }).epoch;

function parsePresence(value: string | undefined): { bootId: string; epoch: number } | undefined {
  const colon = value?.lastIndexOf(":") ?? -1;
  return value && colon > 0
    ? { bootId: value.slice(0, colon), epoch: Number(value.slice(colon + 1)) }
    : undefined;
}
