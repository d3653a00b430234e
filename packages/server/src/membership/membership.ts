import type { NodeView } from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
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
  /** For what must go on under any load: renewals, and the look at the members. */
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
    /** Whether instances tell each other of their nodes. */
    snapshotsEnabled: boolean;
  };
  clock: Clock;
  random: Random;
  log: Log;
  /** After every round: the fleet as it is now. */
  onRound: (nodes: NodeView[]) => void;
  /** After the store was away: a session connected here can be found again. */
  onSessionFoundAgain: (session: SessionConnection) => void;
}

export interface Membership extends Service {
  members: MembersService;
  nodes: Nodes;
  sessions: Sessions;
  fleet: Fleet;
  drain(node: NodeView, draining: boolean, act?: Act): Promise<void>;
  /** Deletes the row of a node-unit that is away; `false` when it may not be deleted. */
  remove(address: string, act?: Act): Promise<boolean>;
  /** Sends everybody to the other instances. Before `stop`. */
  sendAway(urls: string[]): Promise<void>;
}

/** Who is connected, where, and who is lost: the parts of membership, wired to each other. */
export function createMembership(options: MembershipOptions): Membership {
  const { instanceId, db, presenceDb = db, hot, settings, clock, random, log } = options;
  const members = createMembers({
    db: presenceDb,
    clock,
    log,
    presenceTtlMs: settings.presenceTtlMs,
    refreshIntervalMs: settings.refreshIntervalMs,
    brakeEnabled: settings.brakeEnabled,
    onLook: (look) => {
      nodes.onLook(look);
      options.onRound(fleet.views());
    },
  });
  const nodes: Nodes = createNodes({
    instanceId,
    db,
    presenceDb,
    hot,
    members,
    clock,
    random,
    log,
    presenceTtlMs: settings.presenceTtlMs,
    ownerTtlMs: settings.ownerTtlMs,
    publishes: settings.snapshotsEnabled,
    onChange: wakeEverybody,
  });
  const sessions = createSessions({
    instanceId,
    db,
    hot,
    clock,
    random,
    log,
    ownerTtlMs: settings.ownerTtlMs,
    goneAfterMs: settings.sessionGoneAfterMs,
    tokenSessionsMax: settings.tokenSessionsMax,
    onFoundAgain: options.onSessionFoundAgain,
  });
  const fleet = createFleet({
    db,
    hot,
    nodes,
    rows: () => members.current().rows,
    removeStaleAfterMs: settings.removeStaleAfterMs,
    readsOthers: settings.snapshotsEnabled,
  });
  const rounds = every(settings.refreshIntervalMs, round, {
    clock,
    onError: (error) =>
      log.warn(
        { event: "fleet.not-refreshed", error },
        "could not refresh the fleet; trying again",
      ),
  });
  const confirmations = createConfirmations({
    instanceId,
    db: presenceDb,
    confirm: nodes.confirm,
    clock,
    log,
  });
  const channel = `${hot.prefix}:wake:nodes`;

  async function round(): Promise<void> {
    // Side by side: what keeps one of them must not let the other's owners run out.
    await Promise.all([
      fleet.refresh().then(() => options.onRound(fleet.views())),
      sessions.renew(),
    ]);
  }

  /** A wake-up that is lost costs one refresh interval. */
  function wakeEverybody(): void {
    rounds.wake();
    hot.publish(channel, instanceId).catch(() => {});
  }

  return {
    members,
    nodes,
    sessions,
    fleet,
    start() {
      members.start();
      confirmations.start();
      rounds.start();
      hot.onBack(() => {
        nodes.announceAll();
        sessions.announceAll();
        // At once: a round that is under way may wait for an answer that was lost with the connection.
        Promise.all([sessions.renew(), nodes.renew()]).catch(() => {});
        rounds.wake();
      });
      hot
        .subscribe(channel, (from) => from !== instanceId && rounds.wake())
        .catch((error) =>
          log.warn({ event: "fleet.not-woken", error }, "refreshing at intervals only"),
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
        wakeEverybody();
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
