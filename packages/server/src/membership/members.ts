import { ERRORS, issueText, type Member, type ViewState } from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { appendEvent, appendEventOnce } from "../store/event-store.ts";
import {
  changesBetween,
  type MemberChange,
  type Members,
  membersOf,
  type Settling,
  viewState,
} from "./members-view.ts";
import { type BrakeRow, judgeBrake, readBrake, releaseBrake } from "./store/brake-store.ts";
import { requestConfirmation } from "./store/confirmation-store.ts";
import {
  expectedAddresses,
  listOnlineUnits,
  type NodeUnitRow,
  readNodeUnits,
} from "./store/node-unit-store.ts";

const CHANNEL = "tenure_membership";

export interface MembersOptions {
  db: PostgresStore;
  presenceTtlMs: number;
  refreshIntervalMs: number;
  /** Whether a mass loss stops releases. */
  brakeEnabled: boolean;
  clock: Clock;
  log: Log;
  /** After every look at the table, with what changed since the last. */
  onLook: (look: MembersLook) => void;
}

export interface MembersLook {
  /** Those online, and those that went offline since the last look. */
  rows: readonly NodeUnitRow[];
  /** Each with the number it goes out under. Numbers never skip: whoever sees a gap missed something. */
  changes: readonly (MemberChange & { seq: number })[];
  view: ViewState;
  brake: BrakeRow;
}

export interface MembersService extends Service {
  /** Looks now; the promise resolves when that look, or a later one, has ended. */
  refresh(): Promise<void>;
  current(): {
    seq: number;
    view: ViewState;
    members: Member[];
    rows: readonly NodeUnitRow[];
    settlesInMs: number;
  };
  brake(): BrakeRow;
  /** Rejects while the last look failed. */
  checkRead(): Promise<void>;
  /** `false` when it was not on. */
  releaseBrake(act?: Act): Promise<boolean>;
}

/**
 * The members view: which node-units are present, as Postgres has it. Every instance has the same, a moment
 * apart: a change wakes all of them, and each looks every couple of seconds besides.
 */
export function createMembers(options: MembersOptions): MembersService {
  const { db, presenceTtlMs, clock, log } = options;
  let members: Members = new Map();
  let rows: readonly NodeUnitRow[] = [];
  let brake: BrakeRow = { active: false, since: null, lost: 0, members: 0 };
  let settling: Settling | undefined;
  let view: ViewState = "settling";
  let seq = 0;
  let lastLookMs: number | undefined;
  let waiting: Array<() => void> = [];
  /** What was said of rows that cannot be read: once per change. */
  const badRows = new Map<string, string>();
  let failure: unknown;

  const loop = every(options.refreshIntervalMs, look, {
    clock,
    onError: (error) => {
      failure = error;
      log.warn({ event: "members.not-read", error }, "could not read the members from Postgres");
    },
  });

  async function look(): Promise<void> {
    const answered = waiting;
    waiting = [];
    try {
      await settle();
      const found = (await listUnits()).map((row) => (row.invalid ? withFormerTraits(row) : row));
      const now = membersOf(found);
      lastLookMs = clock.monotonicMs();
      failure = undefined;
      const seen = viewState(settling, now, lastLookMs);
      brake = await judge(seen);
      // From here to `onLook` nothing waits: whoever asks for the list gets it at a number, and then hears
      // exactly what came after that number.
      const changes = changesBetween(members, now).map((change) => ({ ...change, seq: ++seq }));
      rows = found;
      members = now;
      view = seen;
      if (view === "ready") settling = undefined;
      options.onLook({ rows, changes, view, brake });
      await tellBadRows(found);
      await tellRunOuts(changes.flatMap((change) => runOut(change) ?? []));
    } finally {
      for (const resolve of answered) resolve();
    }
  }

  /** A row that cannot be read goes on with what it said last. */
  function withFormerTraits(row: NodeUnitRow): NodeUnitRow {
    const former = members.get(row.address);
    if (!former) return row;
    const { labels, tags, claim_policy, instance_id } = former;
    return { ...row, labels, tags, claim_policy, instance_id };
  }

  async function tellBadRows(found: readonly NodeUnitRow[]): Promise<void> {
    for (const { address, name, epoch, invalid } of found) {
      if (!invalid) continue;
      const issues = [...invalid];
      const what = `the row of node-unit ${name}`;
      const message = ERRORS.ERR_INVALID_ROW.message({ what, reason: issueText(issues) });
      if (badRows.get(address) !== message)
        log.error({ event: "node.skipped", code: "ERR_INVALID_ROW", address }, message);
      badRows.set(address, message);
      await appendEventOnce(db, {
        event: "node.skipped",
        code: "ERR_INVALID_ROW",
        message,
        subject: address,
        details: { epoch, issues },
      });
    }
  }

  /** What is online, and once more what was at the last look: only that may have changed. */
  async function listUnits(): Promise<NodeUnitRow[]> {
    const online = await listOnlineUnits(db);
    const here = new Set(online.map(({ address }) => address));
    const gone = rows.filter((row) => row.online && !here.has(row.address));
    const addresses = gone.map(({ address }) => address);
    return [...online, ...(await readNodeUnits(db, addresses))];
  }

  /** At the first look, and after an outage so long that presences may have run out only because of it. */
  async function settle(): Promise<void> {
    const nowMs = clock.monotonicMs();
    if (lastLookMs === undefined) {
      const expected = new Set(await expectedAddresses(db, presenceTtlMs));
      settling = { expected, untilMs: nowMs + presenceTtlMs };
    } else if (nowMs - lastLookMs > presenceTtlMs / 2) {
      settling = { expected: new Set(members.keys()), untilMs: nowMs + presenceTtlMs };
    }
  }

  async function judge(seen: ViewState): Promise<BrakeRow> {
    const changed =
      options.brakeEnabled && seen === "ready" ? await judgeBrake(db, presenceTtlMs) : undefined;
    if (changed) await tellBrake(changed);
    return changed ?? readBrake(db);
  }

  async function tellBrake({ active, lost, members: all }: BrakeRow): Promise<void> {
    const message = active
      ? `${lost} of ${all} node-units were lost at once; nothing is taken from them until they are back or an operator releases the brake`
      : "the lost node-units are back; the mass-loss brake is off";
    const event = active ? "brake.engaged" : "brake.recovered";
    log.warn({ event, lost, members: all }, message);
    await appendEvent(db, { event, message, details: { lost, members: all } });
  }

  /** The row of a node-unit whose presence ran out. A LEAVE is written by the instance that saw it. */
  function runOut({ old, new: now }: MemberChange): NodeUnitRow | undefined {
    const row = now ? undefined : rows.find(({ address }) => address === old?.address);
    return row?.online ? row : undefined;
  }

  /** A silent loss, which no instance saw: others may be gone as well, so each asks its node-units. */
  async function tellRunOuts(lost: readonly NodeUnitRow[]): Promise<void> {
    if (lost.length > 0) await requestConfirmation(db);
    for (const { name, address, epoch, instance_id } of lost) {
      await appendEventOnce(db, {
        event: "node.lost",
        message: `node-unit ${name} has not answered until its presence ran out`,
        subject: address,
        details: { epoch, instance_id },
      });
    }
  }

  return {
    start() {
      db.listen(CHANNEL, () => loop.wake()).catch((error) =>
        log.warn(
          { event: "members.not-woken", error },
          "cannot listen for changes; looking at intervals only",
        ),
      );
      loop.start();
    },
    stop: () => loop.stop(),
    refresh: () =>
      new Promise((resolve) => {
        waiting.push(resolve);
        loop.wake();
      }),
    current: () => ({
      seq,
      view,
      members: [...members.values()],
      rows,
      settlesInMs: settling ? Math.max(0, settling.untilMs - clock.monotonicMs()) : 0,
    }),
    brake: () => brake,
    async checkRead() {
      if (failure !== undefined) throw failure;
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
