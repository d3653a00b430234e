import {
  type CallParams,
  type CallResult,
  CLOSE_CODES,
  type CloseCode,
  DEFAULT_TENANT,
  type HostEvent,
  isNodeUnit,
  type LogLines,
  type LogSelection,
  type NodeRegister,
  type ResourceUsage,
  type ServerMethod,
  type ServerToNode,
  TenureError,
  type ViewState,
} from "@tenure/protocol";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { PostgresStore } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { sendAway } from "./go-away.ts";
import { createMemberPages, type MembersReader } from "./member-pages.ts";
import type { MembersLook, MembersService } from "./members.ts";
import { isUnheardBoot, requestConfirmation } from "./store/confirmation-store.ts";
import {
  joinNodeUnit,
  leaveNodeUnit,
  type NewNodeUnit,
  type NodeTerm,
  type NodeUnitRow,
  nextEpochs,
  renewPresence,
} from "./store/node-unit-store.ts";
import { claimOwner, dropOwner, ownerKeys } from "./store/owner-store.ts";
import {
  dropSnapshot,
  type NodeSnapshot,
  readPresence,
  writeSnapshot,
} from "./store/snapshot-store.ts";
import { changeFor } from "./visible-members.ts";

/** The way to a connected node. The gateway gives one per socket. */
export interface NodeLink {
  send(message: ServerToNode): void;
  /** For a message that is JSON already. */
  sendText(message: string | Buffer): void;
  /** Calls back once, when what was sent has left the process. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
  /** Whether the node answers a ping within `limitMs`. */
  ping(limitMs: number): Promise<boolean>;
  /** Asks the node and waits for its answer, for a limited time. */
  call<M extends ServerMethod>(method: M, params: CallParams<M>): Promise<CallResult<M>>;
  /** Hears a log as it grows. Answers how to stop. */
  follow(selection: LogSelection, follower: LogFollower): Promise<() => void>;
}

export interface LogFollower {
  hear(chunk: LogLines): void;
  /** The node is gone: nothing more will come. */
  ended(): void;
}

export interface NodesOptions {
  instanceId: string;
  db: PostgresStore;
  presenceDb?: PostgresStore | undefined;
  hot: HotStore;
  members: Pick<MembersService, "current">;
  presenceTtlMs: number;
  ownerTtlMs: number;
  /** Whether other instances read of the nodes connected here. */
  publishes: boolean;
  clock: Clock;
  random: Random;
  log: Log;
  /** A node came, went or changed: whoever watches the fleet should look. */
  onChange: () => void;
}

/** What a node's token says of it, which the node itself cannot choose. */
export interface NodeGrant {
  /** The tenants it serves. */
  readonly tenants: readonly string[];
}

export interface Nodes {
  /** Lets a proven node in. Throws `NODE_ADDRESS_IN_USE` while another process answers under its address. */
  join(registration: NodeRegister, link: NodeLink, grant: NodeGrant): Promise<NodeConnection>;
  /** Tells a node-unit who is there; from now on it hears every change. */
  introduce(node: NodeConnection): void;
  /** The nodes connected here. */
  connected(): NodeConnection[];
  /** What the last look at the members means for the nodes connected here. */
  onLook(look: MembersLook): void;
  /** Renews owners, presence and snapshots of the nodes connected here; once per refresh interval. */
  renew(): Promise<void>;
  /** Pings every node-unit connected here, and renews the presence of each that answers. */
  confirm(): Promise<void>;
  /** The hot store may have forgotten them: the next renewal writes all of them. */
  announceAll(): void;
  /** Our own stop is no LEAVE: presence is set one TTL ahead, and the nodes are sent to the others. */
  sendAway(urls: string[]): Promise<void>;
}

export interface NodeConnection {
  readonly nodeId: string;
  readonly epoch: number;
  readonly isNodeUnit: boolean;
  readonly link: NodeLink;
  /** What the node said of itself last. */
  readonly snapshot: NodeSnapshot;
  /** Whether presence was renewed where it counts. */
  heartbeat(sample: {
    resourceUsage?: ResourceUsage | undefined;
    services?: string[] | undefined;
  }): Promise<boolean>;
  /** By the operator's word; tells the node. */
  setDraining(draining: boolean): void;
  /** By the node's own word: it is about to leave and takes nothing new. Tells every instance at once. */
  setLeaving(leaving: boolean): void;
  /** Slots that are in use for attempts that are over. Tells every instance at once. */
  setStuck(stuck: number): void;
  /** The members that this node-unit may see, as the answer to its `member.list`. */
  listMembers(after: string | undefined): Buffer;
  /**
   * The socket is gone; `silently` when the node stopped answering. Answers whether that was a LEAVE: not with a newer
   * connection, nor at our own stop.
   */
  left(silently: boolean): Promise<boolean>;
}

interface Held extends NodeConnection {
  snapshot: NodeSnapshot;
  introduced: boolean;
  /** Whether the process reads the members in pages. */
  readonly readsPages: boolean;
  /** Ends the INIT whose pages are being sent. */
  stopSending(): void;
  isDrained: boolean;
  isLeaving: boolean;
  /** Said something new since the snapshot was written. */
  dirty: boolean;
  writtenAtMs: number;
}

/** How long a node-unit may take to answer when the instances ask which are there. */
const CONFIRM_LIMIT_MS = 1_000;
/** Time for the instances to ask, and to write down what they found. */
const TAKEOVER_LIMIT_MS = 2 * CONFIRM_LIMIT_MS;
const TAKEOVER_POLL_MS = 50;
/** How long a stop waits for the other instances to be told which nodes take nothing new. */
const PUBLISH_LIMIT_MS = 1_000;

export function createNodes(options: NodesOptions): Nodes {
  const { instanceId, db, presenceDb = db, hot, clock, random, log } = options;
  const { presenceTtlMs, ownerTtlMs } = options;
  const held = new Map<string, Held>();
  let toldView: ViewState | undefined;
  let stopping = false;
  const pages = createMemberPages(options.members.current);

  const nextEpoch = batchWhileBusy<undefined, number>((calls) => nextEpochs(db, calls.length));
  const renewInPostgres = batchWhileBusy<NodeTerm, boolean>(async (terms) => {
    const renewed = await renewPresence(presenceDb, terms, presenceTtlMs);
    return terms.map(({ address }) => renewed.has(address));
  });

  async function join(
    registration: NodeRegister,
    link: NodeLink,
    grant: NodeGrant,
  ): Promise<NodeConnection> {
    const { address } = registration;
    const epoch = await nextEpoch(undefined);
    const unit = isNodeUnit(registration.tags);
    const row = unit ? await joinAsUnit(registration, { ...grant, epoch }) : undefined;
    if (!unit) await refuseTwin(registration);
    const node = hold({ registration, grant, epoch, link, row });
    const former = held.get(address);
    // Of two that join at once the newer one stays, whichever comes here first.
    if (former && former.epoch > epoch) {
      giveWay(node);
      return node;
    }
    held.set(address, node);
    former?.link.close(CLOSE_CODES.REPLACED, "a newer connection of this node took its place");
    await announce(node).catch((error) =>
      log.warn(
        { event: "node.not-announced", nodeId: address, error },
        "will be announced when the store is back",
      ),
    );
    options.onChange();
    return node;
  }

  async function joinAsUnit(
    registration: NodeRegister,
    term: NodeGrant & { epoch: number },
  ): Promise<NodeUnitRow> {
    const { address } = registration;
    const unit = unitOf(registration, { ...term, instanceId });
    const row =
      (await joinNodeUnit(db, unit, presenceTtlMs)) ??
      (await takeOver(unit, registration.former_boot_id));
    if (!row) throw new TenureError("NODE_ADDRESS_IN_USE", { address });
    return row;
  }

  /**
   * Lets the successor of the row's boot in once every instance has found out that the former process does not answer.
   * It may answer: a copied data directory names the boot of the original, too.
   */
  async function takeOver(
    unit: NewNodeUnit,
    formerBootId: string | undefined,
  ): Promise<NodeUnitRow | undefined> {
    if (formerBootId === undefined) return undefined;
    const askedAt = await requestConfirmation(db);
    const former = { address: unit.address, bootId: formerBootId, since: askedAt };
    const giveUpAtMs = clock.monotonicMs() + TAKEOVER_LIMIT_MS;
    while ((await isUnheardBoot(db, former)) && clock.monotonicMs() < giveUpAtMs) {
      await clock.sleep(TAKEOVER_POLL_MS);
      const row = await joinNodeUnit(db, unit, presenceTtlMs, { formerBootId, askedAt });
      if (row) return row;
    }
    return undefined;
  }

  /** For a node that is no node-unit the hot state knows who answers under its address. */
  async function refuseTwin({ address, boot_id }: NodeRegister): Promise<void> {
    const present = await readPresence(hot, address);
    if (present && present.bootId !== boot_id)
      throw new TenureError("NODE_ADDRESS_IN_USE", { address });
  }

  function hold({
    registration,
    grant,
    epoch,
    link,
    row,
  }: {
    registration: NodeRegister;
    grant: NodeGrant;
    epoch: number;
    link: NodeLink;
    row: NodeUnitRow | undefined;
  }): Held {
    const term = { address: registration.address, epoch };
    const node: Held = {
      nodeId: registration.address,
      epoch,
      isNodeUnit: row !== undefined,
      link,
      snapshot: snapshotOf(registration, {
        ...{ ...grant, instanceId, epoch, row },
        joinedAtMs: clock.wallMs(),
      }),
      introduced: false,
      readsPages: registration.member_pages ?? false,
      stopSending: () => {},
      isDrained: row?.draining ?? false,
      isLeaving: false,
      dirty: true,
      writtenAtMs: Number.NEGATIVE_INFINITY,
      async heartbeat({ resourceUsage, services }) {
        const { snapshot } = node;
        node.snapshot = {
          ...snapshot,
          resource_usage: resourceUsage ?? snapshot.resource_usage,
          services: services ?? snapshot.services,
        };
        node.dirty ||= JSON.stringify(snapshot) !== JSON.stringify(node.snapshot);
        return node.isNodeUnit ? renewInPostgres(term).catch(() => false) : true;
      },
      setDraining(draining) {
        if (node.isDrained === draining) return;
        node.isDrained = draining;
        describeDraining(node);
        link.send({ type: "node_control", command: draining ? "drain" : "resume" });
        options.onChange();
      },
      setLeaving(leaving) {
        if (stopping || node.isLeaving === leaving) return;
        node.isLeaving = leaving;
        describeDraining(node);
        void publish([node]);
      },
      setStuck(stuck) {
        if ((node.snapshot.stuck ?? 0) === stuck) return;
        node.snapshot = { ...node.snapshot, stuck };
        node.dirty = true;
        void publish([node]);
      },
      listMembers: (after) => pages.list(readerOf(node), after),
      left: (silently) => leave(node, silently),
    };
    return node;
  }

  function describeDraining(node: Held): void {
    const draining = node.isDrained || node.isLeaving;
    node.snapshot = { ...node.snapshot, draining };
    node.dirty = true;
  }

  /** Written before the others are woken, or they would read what was there before. */
  async function publish(nodes: readonly Held[]): Promise<void> {
    await Promise.allSettled(nodes.map(announce)); // a failed write stays dirty, and the next round repeats it
    options.onChange();
  }

  async function leave(node: Held, silently: boolean): Promise<boolean> {
    if (held.get(node.nodeId) === node) held.delete(node.nodeId);
    if (stopping) return false;
    const { nodeId, epoch } = node;
    if (node.isNodeUnit) await leaveNodeUnit(db, { address: nodeId, epoch }, silently);
    const [isLeave] = await Promise.all([
      dropOwner(hot, ownerKeys.node(hot.prefix, nodeId), { instanceId, epoch }),
      dropSnapshot(hot, { nodeId, epoch }),
    ]);
    options.onChange();
    return isLeave;
  }

  /** Says everywhere where this node is. Whoever finds a newer connection there gives way to it. */
  async function announce(node: Held): Promise<void> {
    node.dirty = false;
    const sentAtMs = clock.monotonicMs();
    const owner = { instanceId, epoch: node.epoch };
    const key = ownerKeys.node(hot.prefix, node.nodeId);
    const [claim, written] = await Promise.all([
      claimOwner(hot, { key, owner, ttlMs: ownerTtlMs }),
      options.publishes ? writeSnapshot(hot, node.snapshot, presenceTtlMs) : true,
    ]).catch((error) => {
      node.dirty = true;
      throw error;
    });
    node.writtenAtMs = sentAtMs;
    if (claim.outcome === "newer" || !written) giveWay(node);
  }

  function giveWay(node: Held): void {
    if (held.get(node.nodeId) === node) held.delete(node.nodeId);
    node.link.close(CLOSE_CODES.REPLACED, "a newer connection of this node is on another instance");
  }

  function sendMembers(node: Held): void {
    node.stopSending();
    node.stopSending = pages.send(node.link, readerOf(node));
  }

  return {
    join,
    introduce({ nodeId }) {
      const node = held.get(nodeId);
      if (!node?.isNodeUnit) return;
      node.introduced = true;
      sendMembers(node);
    },
    connected: () => [...held.values()],
    onLook({ rows, changes, view }) {
      for (const row of rows) {
        const node = held.get(row.address);
        if (!node?.isNodeUnit) continue;
        if (row.epoch > node.epoch) giveWay(node);
        else node.setDraining(row.draining);
      }
      // A view that has settled by time alone comes with no change of a member that would carry the word.
      const viewChanged = view !== toldView;
      toldView = view;
      // Once for all that serve the same: the same four megabytes for each of five hundred nodes were seconds and gigabytes.
      const written = new Map<string, Buffer[]>();
      for (const node of held.values()) {
        if (!node.introduced) continue;
        if (viewChanged) {
          sendMembers(node);
          continue;
        }
        const tenants = tenantsOf(node);
        const key = tenants.join(" ");
        const events = written.get(key) ?? told(tenants);
        written.set(key, events);
        for (const event of events) node.link.sendText(event);
      }

      function told(tenants: readonly string[]): Buffer[] {
        return changes.map(({ seq, ...change }) =>
          hostEvent({ event: "TERMINAL_CHANGE", view, seq, ...changeFor(change, tenants) }),
        );
      }
    },
    async renew() {
      const dueBeforeMs = clock.monotonicMs() - Math.min(presenceTtlMs, ownerTtlMs) / 3;
      const due = [...held.values()].filter((node) => node.dirty || node.writtenAtMs < dueBeforeMs);
      await Promise.all(due.map(announce));
    },
    async confirm() {
      const units = [...held.values()].filter((node) => node.isNodeUnit);
      await Promise.all(
        units.map(async ({ nodeId: address, epoch, link }) => {
          if (await link.ping(CONFIRM_LIMIT_MS)) await renewInPostgres({ address, epoch });
        }),
      );
    },
    announceAll() {
      for (const node of held.values()) node.dirty = true;
    },
    async sendAway(urls) {
      stopping = true;
      const nodes = [...held.values()];
      // Until they are connected elsewhere their snapshots name this instance: no other one should choose them.
      for (const node of nodes) {
        node.isLeaving = true;
        describeDraining(node);
      }
      const waiting = new AbortController();
      const published = Promise.race([
        publish(nodes).finally(() => waiting.abort()),
        clock.sleep(PUBLISH_LIMIT_MS, waiting.signal),
      ]);
      const terms = nodes
        .filter((node) => node.isNodeUnit)
        .map(({ nodeId, epoch }) => ({ address: nodeId, epoch }));
      try {
        if (terms.length > 0) await renewPresence(presenceDb, terms, presenceTtlMs);
      } finally {
        await published;
        // Also when Postgres is away: whoever hears it now need not find out by a broken connection.
        for (const { link } of nodes) sendAway(link, { urls, random });
      }
    },
  };
}

interface Connected extends NodeGrant {
  instanceId: string;
  epoch: number;
}

const unitOf = (registration: NodeRegister, { instanceId, epoch, tenants }: Connected) => ({
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
  tenants: [...tenants],
});

function snapshotOf(
  registration: NodeRegister,
  {
    instanceId,
    epoch,
    tenants,
    row,
    joinedAtMs,
  }: Connected & { row: NodeUnitRow | undefined; joinedAtMs: number },
): NodeSnapshot {
  const { address, ...unit } = unitOf(registration, { instanceId, epoch, tenants });
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

const tenantsOf = ({ snapshot }: NodeConnection): readonly string[] =>
  snapshot.tenants ?? [DEFAULT_TENANT];

const readerOf = (node: Held): MembersReader => ({
  tenants: tenantsOf(node),
  readsPages: node.readsPages,
});

const hostEvent = (event: Omit<HostEvent, "type">): Buffer =>
  Buffer.from(JSON.stringify({ type: "host_event", ...event }));
