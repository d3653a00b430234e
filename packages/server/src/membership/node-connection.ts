import {
  type CallParams,
  type CallResult,
  type CloseCode,
  DEFAULT_TENANT,
  type LogLines,
  type LogSelection,
  type NodeRegister,
  type ResourceUsage,
  type ServerMethod,
  type ServerToNode,
  type ViewState,
} from "@tenure/protocol";
import type { MembersReader } from "./member-pages.ts";
import type { NodeUnitRow } from "./store/node-unit-store.ts";
import type { NodeSnapshot } from "./store/snapshot-store.ts";

/** Sends to a connected node. The gateway makes one per socket. */
export interface NodeLink {
  send(message: ServerToNode): void;
  /** Sends a message that is JSON already. */
  sendText(message: string | Buffer): void;
  /** Bytes that have not left the process. */
  unsentBytes(): number;
  /** Calls back once, when everything sent so far has left the process. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
  /** Whether the node answers a ping within `limitMs`. */
  ping(limitMs: number): Promise<boolean>;
  /** Calls the node and waits for its answer, for a limited time. */
  call<M extends ServerMethod>(method: M, params: CallParams<M>): Promise<CallResult<M>>;
  /** Follows a log as it grows. Resolves to a function that ends it. */
  follow(selection: LogSelection, follower: LogFollower): Promise<() => void>;
}

export interface LogFollower {
  onLines(chunk: LogLines): void;
  /** No more lines will come: the node disconnected, or the caller must not read them. */
  ended(): void;
}

/** What the node's token grants; the node itself cannot choose it. */
export interface NodeGrant {
  /** The tenants it serves. */
  readonly tenants: readonly string[];
}

export interface NodeConnection {
  readonly nodeId: string;
  readonly epoch: number;
  readonly isNodeUnit: boolean;
  readonly link: NodeLink;
  /** The node's last description of itself. */
  readonly snapshot: NodeSnapshot;
  /** Resolves to whether its presence was renewed in Postgres; always true for a node that is no node-unit. */
  heartbeat(sample: {
    resourceUsage?: ResourceUsage | undefined;
    services?: string[] | undefined;
  }): Promise<boolean>;
  /** Requested by an operator; the node is notified. */
  setDraining(draining: boolean): void;
  /** Requested by the node: it is about to leave and accepts nothing new. All instances are notified at once. */
  setLeaving(leaving: boolean): void;
  /** The number of slots that are still in use by attempts that ended. All instances are notified at once. */
  setStuck(stuck: number): void;
  /** The members that this node-unit may see, as the answer to `member.list`. */
  listMembers(after: string | undefined): Buffer;
  /**
   * The socket is closed; `silently` when the node stopped answering. Resolves to whether that is a LEAVE: it is not when
   * the node has a newer connection, nor while this instance stops.
   */
  left(silently: boolean): Promise<boolean>;
}

/**
 * A node connected to this instance.
 *
 * - `snapshot.draining` is true while `isDrained` (by an operator) or `isLeaving` (by the node itself).
 * - `isDirty` means that the snapshot differs from what was written to the hot store at `writtenAtMs`.
 * - A node-unit gets changes of the members once it is `isIntroduced`, and `stopSending` ends the INIT that is being sent.
 */
export interface LocalNode extends NodeConnection {
  snapshot: NodeSnapshot;
  isIntroduced: boolean;
  /** Whether the node-unit reads the members in pages. */
  readonly readsPages: boolean;
  /** Whether it reads several changes in one event. */
  readonly readsBatches: boolean;
  readonly sent: SentMembers;
  stopSending(): void;
  isDrained: boolean;
  isLeaving: boolean;
  isDirty: boolean;
  writtenAtMs: number;
}

/** What a node-unit has been sent. */
export interface SentMembers {
  /** The number of the last change, or of the list. */
  seq: number;
  view: ViewState | undefined;
  /** The rest is sent when the socket has sent what it has. */
  isWaiting: boolean;
}

export interface NewConnection {
  registration: NodeRegister;
  grant: NodeGrant;
  epoch: number;
  link: NodeLink;
  instanceId: string;
  /** Of a node-unit. */
  row: NodeUnitRow | undefined;
  joinedAtMs: number;
}

/** What a connection needs from the registry of nodes. */
export interface NodeActions {
  renewPresence(node: LocalNode): Promise<boolean>;
  /** The snapshot changed: the next round of every instance reads it. */
  onChange(): void;
  /** Writes the snapshot now and wakes the other instances. */
  publish(node: LocalNode): void;
  isStopping(): boolean;
  listMembers(reader: MembersReader, after: string | undefined): Buffer;
  leave(node: LocalNode, silently: boolean): Promise<boolean>;
}

export function createLocalNode(connection: NewConnection, actions: NodeActions): LocalNode {
  const { registration, link, epoch, row } = connection;
  const node: LocalNode = {
    nodeId: registration.address,
    epoch,
    isNodeUnit: row !== undefined,
    link,
    snapshot: snapshotOf(connection),
    isIntroduced: false,
    readsPages: registration.member_pages ?? false,
    readsBatches: registration.member_batches ?? false,
    sent: { seq: 0, view: undefined, isWaiting: false },
    stopSending: () => {},
    isDrained: row?.draining ?? false,
    isLeaving: false,
    isDirty: true,
    writtenAtMs: Number.NEGATIVE_INFINITY,
    async heartbeat({ resourceUsage, services }) {
      const { snapshot } = node;
      node.snapshot = {
        ...snapshot,
        resource_usage: resourceUsage ?? snapshot.resource_usage,
        services: services ?? snapshot.services,
      };
      node.isDirty ||= JSON.stringify(snapshot) !== JSON.stringify(node.snapshot);
      return node.isNodeUnit ? actions.renewPresence(node).catch(() => false) : true;
    },
    setDraining(draining) {
      if (node.isDrained === draining) return;
      node.isDrained = draining;
      describeDraining(node);
      link.send({ type: "node_control", command: draining ? "drain" : "resume" });
      actions.onChange();
    },
    setLeaving(leaving) {
      if (actions.isStopping() || node.isLeaving === leaving) return;
      node.isLeaving = leaving;
      describeDraining(node);
      actions.publish(node);
    },
    setStuck(stuck) {
      if ((node.snapshot.stuck ?? 0) === stuck) return;
      node.snapshot = { ...node.snapshot, stuck };
      node.isDirty = true;
      actions.publish(node);
    },
    listMembers: (after) => actions.listMembers(readerOf(node), after),
    left: (silently) => actions.leave(node, silently),
  };
  return node;
}

export function describeDraining(node: LocalNode): void {
  const draining = node.isDrained || node.isLeaving;
  node.snapshot = { ...node.snapshot, draining };
  node.isDirty = true;
}

export const tenantsOf = ({ snapshot }: NodeConnection): readonly string[] =>
  snapshot.tenants ?? [DEFAULT_TENANT];

export const readerOf = (node: LocalNode): MembersReader => ({
  tenants: tenantsOf(node),
  readsPages: node.readsPages,
});

/** The row of a node-unit that joins. */
export const unitOf = ({
  registration,
  grant,
  epoch,
  instanceId,
}: Pick<NewConnection, "registration" | "grant" | "epoch" | "instanceId">) => ({
  address: registration.address,
  name: registration.name,
  version: registration.version,
  instance_id: instanceId,
  boot_id: registration.boot_id,
  epoch,
  claim_policy: registration.claim_policy ?? "deployment_count",
  labels: registration.labels ?? {},
  trusted_package_regexp: registration.trusted_package_regexp ?? "",
  custom_command: registration.custom_command ?? false,
  tags: registration.tags,
  tenants: [...grant.tenants],
});

function snapshotOf(connection: NewConnection): NodeSnapshot {
  const { registration, row, joinedAtMs } = connection;
  const { address, ...unit } = unitOf(connection);
  return {
    v: 1,
    node_id: address,
    ...unit,
    pools: registration.pools ?? [],
    services: registration.services ?? [],
    capacity: registration.capacity ?? 0,
    draining: row?.draining ?? false,
    resource_usage: null,
    joined_at: (row?.joined_at ?? new Date(joinedAtMs)).toISOString(),
  };
}
