import { CLOSE_CODES, isNodeUnit, type NodeRegister } from "@tenure/protocol";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { restMs } from "../kernel/rest.ts";
import type { PostgresStore } from "../store/db.ts";
import { sendAway } from "./go-away.ts";
import { createMemberPages } from "./member-pages.ts";
import type { MembersRefresh, MembersService } from "./members.ts";
import { CONFIRM_LIMIT_MS, createNodeAdmission } from "./node-admission.ts";
import { type AnnouncerOptions, createNodeAnnouncer } from "./node-announcer.ts";
import {
  createLocalNode,
  describeDraining,
  type LocalNode,
  type NodeActions,
  type NodeConnection,
  type NodeGrant,
  type NodeLink,
  unitOf,
} from "./node-connection.ts";
import { createMemberEvents } from "./sending/member-events.ts";
import {
  leaveNodeUnit,
  type NodeTerm,
  nextEpochs,
  renewPresence,
} from "./store/node-unit-store.ts";

export interface NodesOptions extends Omit<AnnouncerOptions, "connections"> {
  db: PostgresStore;
  presenceDb?: PostgresStore | undefined;
  members: Pick<MembersService, "current">;
  random: Random;
  log: Log;
}

/** The nodes connected to this instance. */
export interface Nodes {
  /** Admits a node that proved its identity. Throws `NODE_ADDRESS_IN_USE` while another process answers under its address. */
  join(registration: NodeRegister, link: NodeLink, grant: NodeGrant): Promise<NodeConnection>;
  /** Sends a node-unit the members; from now on it gets every change. */
  introduce(node: NodeConnection): void;
  connected(): NodeConnection[];
  /** Passes a refresh of the members on to the nodes connected here, and closes connections that were replaced. */
  onRefresh(refresh: MembersRefresh): void;
  /** Renews owners, presence and snapshots; once per refresh interval. */
  renew(): Promise<void>;
  /** Pings every node-unit connected here, and renews the presence of each that answers. */
  confirm(): Promise<void>;
  /** The hot store may have lost the nodes: the next renewal writes all of them. */
  announceAll(): void;
  /** Sends the nodes to other instances. That is no LEAVE: their presence is renewed for one TTL. */
  sendAway(urls: string[]): Promise<void>;
}

/** How long a stop waits until the other instances know which nodes accept nothing new. */
const PUBLISH_LIMIT_MS = 1_000;
/** The longest time for which heartbeats are collected before one statement renews all. Their interval is seconds. */
const BEATS_REST_MS_MAX = 200;

export function createNodes(options: NodesOptions): Nodes {
  const { instanceId, db, presenceDb = db, clock, random, log, presenceTtlMs } = options;
  const connections = new Map<string, LocalNode>();
  let isStopping = false;
  const pages = createMemberPages(options.members.current);
  const events = createMemberEvents(pages);
  const announcer = createNodeAnnouncer({ ...options, connections });
  const admission = createNodeAdmission(options);
  const nextEpoch = batchWhileBusy<undefined, number>((calls) => nextEpochs(db, calls.length));
  const renewAll = async (terms: readonly NodeTerm[]): Promise<boolean[]> => {
    const renewed = await renewPresence(presenceDb, terms, presenceTtlMs);
    return terms.map(({ address }) => renewed.has(address));
  };
  const renewConfirmed = batchWhileBusy(renewAll);
  // A statement per heartbeat would be most of what a large fleet at rest costs Postgres.
  const renewBeating = batchWhileBusy(renewAll, {
    async rest() {
      const ms = Math.min(BEATS_REST_MS_MAX, restMs(connections.size));
      if (ms > 0) await clock.sleep(ms);
    },
  });
  const actions: NodeActions = {
    renewPresence: (node) => renewBeating(termOf(node)),
    onChange: options.onChange,
    publish: (node) => void announcer.publish([node]),
    isStopping: () => isStopping,
    listMembers: pages.list,
    async leave(node, silently) {
      if (connections.get(node.nodeId) === node) connections.delete(node.nodeId);
      if (isStopping) return false;
      if (node.isNodeUnit) await leaveNodeUnit(db, termOf(node), silently);
      return announcer.withdraw(node);
    },
  };

  async function join(registration: NodeRegister, link: NodeLink, grant: NodeGrant) {
    const { address, former_boot_id: formerBootId } = registration;
    const epoch = await nextEpoch(undefined);
    const connection = { registration, grant, epoch, link, instanceId };
    const row = isNodeUnit(registration.tags)
      ? await admission.admitUnit(unitOf(connection), formerBootId)
      : undefined;
    if (!row) await admission.admitWorker(registration);
    const joinedAtMs = clock.wallMs();
    const node = createLocalNode({ ...connection, row, joinedAtMs }, actions);
    const former = connections.get(address);
    // When two connections of a node join at once, the one with the newer epoch stays.
    if (former && former.epoch > epoch) {
      announcer.closeReplaced(node);
      return node;
    }
    connections.set(address, node);
    former?.link.close(CLOSE_CODES.REPLACED, "a newer connection of this node took its place");
    await announcer
      .announce(node)
      .catch((error) =>
        log.warn(
          { event: "node.not-announced", nodeId: address, error },
          "could not announce a node to the other instances; will retry when the store is back",
        ),
      );
    options.onChange();
    return node;
  }

  return {
    join,
    introduce({ nodeId }) {
      const node = connections.get(nodeId);
      if (!node?.isNodeUnit) return;
      node.isIntroduced = true;
      events.sendAll(node);
    },
    connected: () => [...connections.values()],
    onRefresh(refresh) {
      for (const row of refresh.rows) {
        const node = connections.get(row.address);
        if (!node?.isNodeUnit) continue;
        if (row.epoch > node.epoch) announcer.closeReplaced(node);
        else node.setDraining(row.draining);
      }
      events.onRefresh(refresh, connections.values());
    },
    renew: announcer.renew,
    async confirm() {
      const units = [...connections.values()].filter((node) => node.isNodeUnit);
      await Promise.all(
        units.map(async (node) => {
          if (await node.link.ping(CONFIRM_LIMIT_MS)) await renewConfirmed(termOf(node));
        }),
      );
    },
    announceAll() {
      for (const node of connections.values()) node.isDirty = true;
    },
    async sendAway(urls) {
      isStopping = true;
      const nodes = [...connections.values()];
      // Until they are connected elsewhere their snapshots name this instance: no other instance should choose them.
      for (const node of nodes) {
        node.isLeaving = true;
        describeDraining(node);
      }
      const waiting = new AbortController();
      const published = Promise.race([
        announcer.publish(nodes).finally(() => waiting.abort()),
        clock.sleep(PUBLISH_LIMIT_MS, waiting.signal),
      ]);
      const terms = nodes.filter((node) => node.isNodeUnit).map(termOf);
      try {
        if (terms.length > 0) await renewPresence(presenceDb, terms, presenceTtlMs);
      } finally {
        await published;
        // Also while Postgres is down: a node that is notified need not find out by a broken connection.
        for (const { link } of nodes) sendAway(link, { urls, random });
      }
    },
  };
}

const termOf = ({ nodeId, epoch }: NodeConnection): NodeTerm => ({ address: nodeId, epoch });
