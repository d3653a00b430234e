import type { BrakeRow } from "../../../packages/server/src/membership/store/brake-store.ts";
import type {
  NewNodeUnit,
  NodeUnitRow,
} from "../../../packages/server/src/membership/store/node-unit-store.ts";

export type NodeUnit = Omit<NodeUnitRow, "present" | "lost_at">;

export interface NodeTerm {
  address: string;
  epoch: number;
}

/** The tables `node_unit` and `membership_brake`, with the statements that write them. */
export interface NodeTable {
  get(address: string): NodeUnit | undefined;
  list(): NodeUnitRow[];
  isPresent(unit: NodeUnit): boolean;
  nextEpoch(): number;
  join(unit: NewNodeUnit, ttlMs: number): NodeUnit | undefined;
  renew(term: NodeTerm, ttlMs: number): boolean;
  leave(term: NodeTerm, silently?: boolean): boolean;
  setDraining(address: string, draining: boolean): void;
  expected(ttlMs: number): string[];
  brake(): BrakeRow;
  judgeBrake(ttlMs: number): void;
  /**
   * Whether more than half of those that count were lost within one TTL. One that was not heard since the last silent
   * loss of `suspects` counts as lost.
   */
  isMassLoss(ttlMs: number, suspects: readonly string[]): boolean;
  /** When the present node-unit that was heard longest ago was heard; undefined without any. */
  allHeardSinceMs(): number | undefined;
  lostAtMs(unit: NodeUnit): number;
  releaseBrake(): void;
  onChange(listener: () => void): void;
}

const LOST_MIN = 3;
const HOUR_MS = 3_600_000;

export function createNodeTable(
  nowMs: () => number,
  {
    leaveSeesEpoch = true,
    owns = () => true,
  }: { leaveSeesEpoch?: boolean; owns?: (address: string) => boolean } = {},
): NodeTable {
  const units = new Map<string, NodeUnit>();
  const listeners: Array<() => void> = [];
  let epoch = 0;
  let brake: BrakeRow = { active: false, since: null, lost: 0, members: 0 };
  let releasedAtMs = Number.NEGATIVE_INFINITY;
  let changedAtMs = Number.NEGATIVE_INFINITY;

  const isPresent = ({ online, presence_expires_at }: NodeUnit): boolean =>
    online && presence_expires_at.getTime() > nowMs();

  function tell(): void {
    for (const listener of listeners) listener();
  }

  function mayJoin(former: NodeUnit | undefined, unit: NewNodeUnit): boolean {
    if (!former) return true;
    const isVacant = former.boot_id === unit.boot_id || !isPresent(former);
    return former.epoch < unit.epoch && isVacant;
  }

  function lossMs({ online, presence_expires_at, left_at }: NodeUnit): number {
    return (online ? presence_expires_at.getTime() : left_at?.getTime()) ?? Number.NaN;
  }

  const counts = (unit: NodeUnit): boolean =>
    owns(unit.address) || Math.min(lossMs(unit), nowMs()) - unit.joined_at.getTime() >= HOUR_MS;

  function losses(
    fromMs: number,
    silenceMs = Number.NEGATIVE_INFINITY,
  ): { lost: number; present: number; isMass: boolean } {
    const counted = [...units.values()].filter(counts);
    const here = counted.filter(isPresent);
    const heard = here.filter(({ renewed_at }) => renewed_at!.getTime() > silenceMs).length;
    const gone = counted.map(lossMs).filter((at) => at >= fromMs && at <= nowMs()).length;
    const lost = gone + here.length - heard;
    const present = lost > 0 ? heard : 0;
    return { lost, present, isMass: lost >= LOST_MIN && lost > present };
  }

  function lastSilenceMs(addresses: readonly string[], fromMs: number): number {
    const silent = addresses.flatMap((address) => units.get(address) ?? []);
    const lostMs = silent.filter((unit) => unit.online || unit.left_silently).map(lossMs);
    return Math.max(...lostMs.filter((at) => at >= fromMs && at <= nowMs()));
  }

  return {
    lostAtMs: lossMs,
    isMassLoss(ttlMs, suspects) {
      const fromMs = Math.max(releasedAtMs, nowMs() - ttlMs);
      return losses(fromMs, lastSilenceMs(suspects, fromMs)).isMass;
    },
    allHeardSinceMs() {
      const heard = [...units.values()].filter(isPresent).map((unit) => unit.renewed_at!.getTime());
      return heard.length > 0 ? Math.min(...heard) : undefined;
    },
    get: (address) => units.get(address),
    list: () =>
      [...units.values()]
        .sort((a, b) => (a.address < b.address ? -1 : 1))
        .map((unit) => ({
          ...unit,
          present: isPresent(unit),
          lost_at: new Date(lossMs(unit)),
        })),
    isPresent,
    nextEpoch: () => ++epoch,
    join(unit, ttlMs) {
      const former = units.get(unit.address);
      if (!mayJoin(former, unit)) return undefined;
      const isSame = former?.boot_id === unit.boot_id && former.online;
      const joined: NodeUnit = {
        ...unit,
        online: true,
        presence_expires_at: new Date(nowMs() + ttlMs),
        left_at: null,
        draining: former?.draining ?? false,
        joined_at: isSame ? former.joined_at : new Date(nowMs()),
        renewed_at: new Date(nowMs()),
        left_silently: false,
      };
      units.set(unit.address, joined);
      tell();
      return joined;
    },
    renew({ address, epoch: mine }, ttlMs) {
      const unit = units.get(address);
      if (unit?.epoch !== mine || !unit.online) return false;
      const until = nowMs() + ttlMs;
      // As the trigger does: a renewal that changes nothing is none.
      const isLater = until > unit.presence_expires_at.getTime();
      const renewed_at = isLater ? new Date(nowMs()) : unit.renewed_at;
      units.set(address, { ...unit, presence_expires_at: new Date(until), renewed_at });
      return true;
    },
    leave({ address, epoch: mine }, silently = false) {
      const unit = units.get(address);
      if (!unit?.online || (unit.epoch !== mine && leaveSeesEpoch)) return false;
      const left = { online: false, left_at: new Date(nowMs()), left_silently: silently };
      units.set(address, { ...unit, ...left });
      tell();
      return true;
    },
    setDraining(address, draining) {
      const unit = units.get(address);
      if (!unit || unit.draining === draining) return;
      units.set(address, { ...unit, draining });
      tell();
    },
    expected: (ttlMs) =>
      [...units.values()]
        .filter((unit) => lossMs(unit) > nowMs() - ttlMs)
        .map((unit) => unit.address),
    brake: () => brake,
    judgeBrake(ttlMs) {
      const was = brake.active;
      const sinceMs = was ? (brake.since?.getTime() ?? 0) : nowMs();
      const { lost, present, isMass } = losses(Math.max(releasedAtMs, sinceMs - ttlMs));
      const members = lost + present;
      const differs = lost !== brake.lost || members !== brake.members;
      const isUnstable = differs || Math.max(changedAtMs, sinceMs) > nowMs() - ttlMs;
      const active = isMass || (was && lost > 0 && isUnstable);
      if (!(active || was) || (active === was && !differs)) return;
      if (differs) changedAtMs = nowMs();
      brake = { active, since: was ? brake.since : new Date(nowMs()), lost, members };
      tell();
    },
    releaseBrake() {
      if (!brake.active) return;
      brake = { ...brake, active: false };
      releasedAtMs = nowMs();
      tell();
    },
    onChange: (listener) => void listeners.push(listener),
  };
}
