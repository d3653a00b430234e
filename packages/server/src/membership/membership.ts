import type { NodeView } from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { restMs } from "../kernel/rest.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { createConfirmations } from "./confirmations.ts";
import { createFleet, type Fleet } from "./fleet.ts";
import { createMembers, type MembersService } from "./members.ts";
import { createNodes, type Nodes } from "./nodes.ts";
import { createSessions, type SessionConnection, type Sessions } from "./sessions.ts";
import { removeNodeUnit, setDraining } from "./store/node-unit-store.ts";
import { markDraining } from "./store/snapshot-store.ts";

export interface MembershipOptions {
  instanceId: string;
  db: PostgresStore;
  /** For renewals and the members, which must not wait for other statements. */
  presenceDb?: PostgresStore | undefined;
  hot: HotStore;
  settings: {
    presenceTtlMs: number;
    ownerTtlMs: number;
    refreshIntervalMs: number;
    removeStaleAfterMs: number;
    sessionGoneAfterMs: number;
    tokenSessionsMax: number;
    brakeEnabled: boolean;
    /** Whether instances read each other's nodes. */
    snapshotsEnabled: boolean;
  };
  clock: Clock;
  random: Random;
  log: Log;
  /** The slots of a node that jobs have reserved. */
  reservedOf: (nodeId: string) => number;
  /** Called after every refresh with the nodes of the fleet. */
  onRefresh: (nodes: NodeView[]) => void;
  /** The owner of a session connected here was written again after the hot store had lost it. */
  onSessionFoundAgain: (session: SessionConnection) => void;
}

export interface Membership extends Service {
  members: MembersService;
  nodes: Nodes;
  sessions: Sessions;
  fleet: Fleet;
  /** Writes all nodes and sessions again: the hot store may have lost them. */
  announceAll(): void;
  drain(node: NodeView, draining: boolean, act?: Act): Promise<void>;
  /** Deletes the row of a node-unit that is away. Resolves to false when it may not be deleted. */
  remove(address: string, act?: Act): Promise<boolean>;
  /** Sends nodes and sessions to the other instances. Called before `stop`. */
  sendAway(urls: string[]): Promise<void>;
}

/** Creates the parts of membership: connected nodes and sessions, the members view, the fleet. */
export function createMembership(options: MembershipOptions): Membership {
  const { instanceId, db, presenceDb = db, hot, settings, clock, random, log } = options;
  const members = createMembers({
    ...{ ...settings, db: presenceDb, clock, log },
    onRefresh: (refresh) => {
      nodes.onRefresh(refresh);
      options.onRefresh(fleet.views());
    },
  });
  const nodes: Nodes = createNodes({
    ...{ ...settings, instanceId, db, presenceDb, hot, members, clock, random, log },
    publishes: settings.snapshotsEnabled,
    onChange: wakeInstances,
  });
  const sessions = createSessions({
    ...{ ...settings, instanceId, db, hot, clock, random, log },
    goneAfterMs: settings.sessionGoneAfterMs,
    onFoundAgain: options.onSessionFoundAgain,
  });
  const fleet = createFleet({
    db,
    hot,
    nodes,
    rows: () => members.current().rows,
    removeStaleAfterMs: settings.removeStaleAfterMs,
    reservedOf: options.reservedOf,
    readsOthers: settings.snapshotsEnabled,
  });
  const rounds = every(settings.refreshIntervalMs, round, {
    clock,
    onError: (error) =>
      log.warn({ event: "fleet.not-refreshed", error }, "could not refresh the fleet; will retry"),
  });
  const confirmations = createConfirmations({
    instanceId,
    db: presenceDb,
    confirm: nodes.confirm,
    clock,
    log,
  });
  const channel = `${hot.prefix}:wake:nodes`;

  async function round(signal: AbortSignal): Promise<void> {
    // In parallel: while one of them waits, the owners of the other must not expire.
    await Promise.all([
      fleet.refresh().then(() => options.onRefresh(fleet.views())),
      sessions.renew(),
    ]);
    await clock.sleep(restMs(nodes.connected().length), signal);
  }

  /** Wakes all instances. A lost message costs one refresh interval. */
  function wakeInstances(): void {
    rounds.wake();
    hot.publish(channel, instanceId).catch(() => {});
  }

  /** The hot store may have lost its state, or messages. */
  function announceAll(): void {
    nodes.announceAll();
    sessions.announceAll();
    // At once: a running round may wait for an answer that was lost with the connection.
    Promise.all([sessions.renew(), nodes.renew()]).catch(() => {});
    rounds.wake();
  }

  return {
    members,
    nodes,
    sessions,
    fleet,
    announceAll,
    start() {
      members.start();
      confirmations.start();
      rounds.start();
      hot.onBack(announceAll);
      hot
        .subscribe(channel, (from) => from !== instanceId && rounds.wake())
        .catch((error) =>
          log.warn(
            { event: "fleet.not-woken", error },
            "could not subscribe to wake-ups of the fleet; refreshing it at intervals only",
          ),
        );
    },
    async drain(node, draining, act) {
      if (node.node_unit) {
        await recorded(db, act, {
          write: (tx) => setDraining(tx, node.node_id, draining),
          subjectOf: () => node.node_id,
        });
        await members.refresh();
      } else {
        await markDraining(hot, node.node_id, draining);
        wakeInstances();
      }
    },
    async remove(address, act) {
      const removed = await recorded(db, act, {
        write: (tx) => removeNodeUnit(tx, address, actorDetails(act)),
        subjectOf: (isRemoved) => (isRemoved ? address : undefined),
      });
      if (removed) await members.refresh();
      return removed;
    },
    async sendAway(urls) {
      sessions.sendAway(urls);
      await nodes.sendAway(urls);
    },
    async stop() {
      await Promise.all([rounds.stop(), confirmations.stop(), members.stop()]);
    },
  };
}
