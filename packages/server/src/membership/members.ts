import type { Member, ViewState } from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { restMs } from "../kernel/rest.ts";
import type { PostgresStore } from "../store/db.ts";
import { appendEvent } from "../store/event-store.ts";
import { createTableRefresh, type TableRefresh } from "../store/table-refresh.ts";
import { createMembersEvents } from "./members-events.ts";
import {
  changesBetween,
  type MemberChange,
  type Members,
  membersOf,
  type Settling,
  viewState,
} from "./members-view.ts";
import { OnlineUnits } from "./online-units.ts";
import {
  type BrakeRow,
  brakeOf,
  judgeBrakes,
  listBrakes,
  releaseBrake,
  type TenantBrake,
} from "./store/brake-store.ts";
import { requestConfirmation } from "./store/confirmation-store.ts";
import { expectedAddresses, type NodeUnitRow } from "./store/node-unit-store.ts";

export interface MembersOptions {
  db: PostgresStore;
  presenceTtlMs: number;
  refreshIntervalMs: number;
  /** Whether a mass loss stops releases. */
  brakeEnabled: boolean;
  clock: Clock;
  log: Log;
  /** Called after every refresh, with the changes since the last one. */
  onRefresh: (refresh: MembersRefresh) => void;
}

export interface MembersRefresh {
  /** The node-units that are online, and those that went offline since the last refresh. */
  rows: readonly NodeUnitRow[];
  /** Each has its own number. Numbers never skip: a reader that sees a gap missed a change. */
  changes: readonly (MemberChange & { seq: number })[];
  view: ViewState;
}

export interface MembersService extends TableRefresh {
  current(): {
    seq: number;
    view: ViewState;
    members: Member[];
    rows: readonly NodeUnitRow[];
    settlesInMs: number;
  };
  /** Present node-units that were not renewed for three heartbeats. */
  silent(): ReadonlySet<string>;
  /** The brake that concerns these tenants; `*` = any. */
  brake(tenants: readonly string[]): BrakeRow;
  /** Rejects when the last refresh failed. */
  checkRead(): Promise<void>;
  /** Resolves to false when the brake was off. */
  releaseBrake(act?: Act): Promise<boolean>;
}

/**
 * The members view of this instance.
 *
 * - `members` are the rows that are present, and `seq` the number of the last change. Both change in one tick with
 *   `onRefresh`, so a reader that gets the list at a number then gets exactly the changes after that number.
 * - `view` is `settling` until all expected node-units are present or one TTL has passed: until then absence is no loss.
 * - `failure` is the error of the last refresh, if it failed.
 */
interface State {
  members: Members;
  rows: readonly NodeUnitRow[];
  brakes: readonly TenantBrake[];
  settling: Settling | undefined;
  view: ViewState;
  seq: number;
  lastReadMs: number | undefined;
  failure: unknown;
}

/** Keeps the members view: the node-units that are present, by Postgres. All instances have the same, a moment apart. */
export function createMembers(options: MembersOptions): MembersService {
  const { db, presenceTtlMs, clock, log } = options;
  const events = createMembersEvents({ db, log });
  const units = new OnlineUnits(db, presenceTtlMs);
  const state: State = {
    ...{ members: new Map(), rows: [], settling: undefined, view: "settling", seq: 0 },
    brakes: [],
    ...{ lastReadMs: undefined, failure: undefined },
  };

  async function read(): Promise<void> {
    await settle();
    const rows = await units.read();
    const members = membersOf(rows);
    state.lastReadMs = clock.monotonicMs();
    state.failure = undefined;
    const view = viewState(state.settling, members, state.lastReadMs);
    const brakes = await updateBrakes(view);
    // No await from here to `onRefresh`: list and changes must agree.
    const changes = changesBetween(state.members, members).map((change) => ({
      ...change,
      seq: ++state.seq,
    }));
    if (view === "ready") state.settling = undefined;
    Object.assign(state, { members, rows, view, brakes });
    options.onRefresh({ rows, changes, view });
    await events.invalidRows(rows);
    const lost = expiredRows(rows, changes);
    // No instance saw these node-units leave: others may be lost as well, so every instance pings its own.
    if (lost.length > 0) await requestConfirmation(db);
    await events.presenceExpired(lost);
  }

  /** Starts to settle at the first read, and after an outage that may have made presences expire. */
  async function settle(): Promise<void> {
    const nowMs = clock.monotonicMs();
    const untilMs = nowMs + presenceTtlMs;
    if (state.lastReadMs === undefined) {
      const expected = new Set(await expectedAddresses(db, presenceTtlMs));
      state.settling = { expected, untilMs };
    } else if (nowMs - state.lastReadMs > presenceTtlMs / 2) {
      state.settling = { expected: new Set(state.members.keys()), untilMs };
    }
  }

  async function updateBrakes(view: ViewState): Promise<TenantBrake[]> {
    const isJudged = options.brakeEnabled && view === "ready";
    const changed = isJudged ? await judgeBrakes(db, presenceTtlMs) : [];
    for (const brake of changed) await events.brakeChanged(brake);
    return listBrakes(db);
  }

  const refresh = createTableRefresh({
    ...{ db, clock, channel: "tenure_membership", intervalMs: options.refreshIntervalMs, read },
    restMs: () => restMs(state.members.size),
    onReadError(error) {
      state.failure = error;
      log.warn({ event: "members.not-read", error }, "could not read the members; will retry");
    },
    onListenError: (error) =>
      log.warn(
        { event: "members.not-woken", error },
        "could not listen for changes of the members; reading them at intervals only",
      ),
  });

  return {
    ...refresh,
    current: () => ({
      seq: state.seq,
      view: state.view,
      members: [...state.members.values()],
      rows: state.rows,
      settlesInMs: state.settling ? Math.max(0, state.settling.untilMs - clock.monotonicMs()) : 0,
    }),
    silent: () => units.silent,
    brake: (tenants) => brakeOf(state.brakes, tenants),
    async checkRead() {
      if (state.failure !== undefined) throw state.failure;
    },
    releaseBrake: (act) =>
      recorded(db, act, {
        async write(tx) {
          const released = await releaseBrake(tx);
          const message = "an operator released the mass-loss brake";
          const details = actorDetails(act);
          if (released) await appendEvent(tx, { event: "brake.released", message, details });
          return released;
        },
        subjectOf: (released) => (released ? "brake" : undefined),
      }),
  };
}

/** The rows of the node-units whose presence expired. A node-unit that left has `online` false in its row. */
function expiredRows(
  rows: readonly NodeUnitRow[],
  changes: readonly MemberChange[],
): NodeUnitRow[] {
  const gone = new Set(changes.flatMap(({ old, new: now }) => (old && !now ? old.address : [])));
  return gone.size > 0 ? rows.filter(({ address, online }) => online && gone.has(address)) : [];
}
