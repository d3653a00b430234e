import type { BrakeRow } from "../../../packages/server/src/membership/brake-store.ts";
import type {
  NewNodeUnit,
  NodeUnitRow,
} from "../../../packages/server/src/membership/node-unit-store.ts";

export type NodeUnit = Omit<NodeUnitRow, "present" | "present_for_ms">;

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
  leave(term: NodeTerm): boolean;
  setDraining(address: string, draining: boolean): void;
  expected(ttlMs: number): string[];
  brake(): BrakeRow;
  judgeBrake(ttlMs: number): void;
  releaseBrake(): void;
  onChange(listener: () => void): void;
}

const LOST_MIN = 3;

export function createNodeTable(
  nowMs: () => number,
  { leaveSeesEpoch = true }: { leaveSeesEpoch?: boolean } = {},
): NodeTable {
  const units = new Map<string, NodeUnit>();
  const listeners: Array<() => void> = [];
  let epoch = 0;
  let brake: BrakeRow = { active: false, since: null, lost: 0, members: 0 };
  let releasedAtMs = Number.NEGATIVE_INFINITY;

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

  return {
    get: (address) => units.get(address),
    list: () =>
      [...units.values()]
        .sort((a, b) => (a.address < b.address ? -1 : 1))
        .map((unit) => ({
          ...unit,
          present: isPresent(unit),
          present_for_ms: unit.presence_expires_at.getTime() - nowMs(),
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
      };
      units.set(unit.address, joined);
      tell();
      return joined;
    },
    renew({ address, epoch: mine }, ttlMs) {
      const unit = units.get(address);
      if (unit?.epoch !== mine || !unit.online) return false;
      units.set(address, { ...unit, presence_expires_at: new Date(nowMs() + ttlMs) });
      return true;
    },
    leave({ address, epoch: mine }) {
      const unit = units.get(address);
      if (!unit?.online || (unit.epoch !== mine && leaveSeesEpoch)) return false;
      units.set(address, { ...unit, online: false, left_at: new Date(nowMs()) });
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
      const sinceMs = brake.active ? (brake.since?.getTime() ?? 0) : nowMs();
      const fromMs = Math.max(releasedAtMs, sinceMs - ttlMs);
      const all = [...units.values()];
      const present = all.filter(isPresent).length;
      const lost = all.map(lossMs).filter((at) => at >= fromMs && at <= nowMs()).length;
      const active = lost >= LOST_MIN && lost > present;
      if (active === brake.active) return;
      const since = brake.active ? brake.since : new Date(nowMs());
      brake = { active, since, lost, members: lost + present };
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
