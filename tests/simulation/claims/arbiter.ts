import { type DeploymentTerm, selects } from "@tenure/protocol";
import type {
  DeploymentRow,
  NodeTerm,
} from "../../../packages/server/src/deployments/deployment-row.ts";
import type {
  ClaimOutcome,
  ReleaseOutcome,
} from "../../../packages/server/src/deployments/store/claim-store.ts";
import { createDeploymentTable, type DeploymentTable } from "./deployment-table.ts";
import { createNodeTable, type NodeTable, type NodeUnit } from "./node-table.ts";

/** What a statement of the store checks. A planted bug takes one away. */
export const PROTECTIONS = [
  "claim_sees_owner",
  "claim_sees_generation",
  "claim_raises_generation",
  "claim_sees_caller",
  "claim_sees_policy",
  "claim_sees_drain",
  "claim_sees_enabled",
  "release_sees_nodes",
  "release_sees_patience",
  "release_sees_brake",
  "release_sees_policy",
  "leave_sees_epoch",
] as const;
export type Protection = (typeof PROTECTIONS)[number];

/** A write of `address`, for whoever watches. */
export interface OwnerWrite {
  kind: "claim" | "release";
  by: NodeTerm;
  /** The term that the caller named, if it named one. */
  seen: DeploymentTerm | undefined;
  before: DeploymentRow;
  after: DeploymentRow;
}

export interface ArbiterOptions {
  nowMs: () => number;
  without?: ReadonlySet<Protection>;
  /** Within how long losses count together; without it only a brake that is on already stops a release. */
  brakeTtlMs?: number;
  /** Whether a rival's transaction holds the row at this moment: then it is skipped. */
  isLocked?: (id: string) => boolean;
  onOwner?: (write: OwnerWrite) => void;
}

/**
 * Postgres, as far as deployments care: the statements of `claim-store.ts`, `move-store.ts`, `node-unit-store.ts` and
 * `brake-store.ts`, condition by condition. `arbiter.test.ts` holds it to them on a real Postgres.
 */
export interface Arbiter {
  readonly deployments: DeploymentTable;
  readonly nodes: NodeTable;
  claimFirstFree(caller: NodeTerm, candidates: readonly DeploymentTerm[]): ClaimOutcome;
  reserveFirst(caller: NodeTerm, candidates: readonly DeploymentTerm[]): ClaimOutcome;
  releaseLost(caller: NodeTerm, addresses: readonly string[]): ReleaseOutcome;
  markMoveReady(step: MoveStep): boolean;
  giveMoveBack(step: MoveStep): boolean;
  markStopped(step: MoveStep): boolean;
  dropDeadMoves(): number;
}

interface MoveStep extends DeploymentTerm {
  address: string;
}

const INSTALL_LIMIT_MS = 10 * 60_000;
const SILENT_WAIT_MS = 5_000;

export function createArbiter(options: ArbiterOptions): Arbiter {
  const { nowMs, without = new Set(), isLocked = () => false, onOwner = () => {} } = options;
  const holds = (protection: Protection): boolean => !without.has(protection);
  const deployments = createDeploymentTable();
  const nodes = createNodeTable(nowMs, {
    leaveSeesEpoch: holds("leave_sees_epoch"),
    owns: (address) => deployments.ownedBy(address).some(({ type }) => type === "deployment"),
  });

  const isCurrent = (unit: NodeUnit | undefined, epoch: number): unit is NodeUnit =>
    unit !== undefined && unit.epoch === epoch && nodes.isPresent(unit);

  /** `undefined`: the caller may take rows. */
  function refusal({ address, epoch }: NodeTerm): ClaimOutcome | undefined {
    const me = nodes.get(address);
    if (holds("claim_sees_caller") && !isCurrent(me, epoch))
      return { outcome: "refused", why: "replaced" };
    if (holds("claim_sees_policy") && me?.claim_policy === "none")
      return { outcome: "refused", why: "policy_none" };
    if (holds("claim_sees_drain") && me?.draining) return { outcome: "refused", why: "draining" };
    return undefined;
  }

  function firstOf(
    candidates: readonly DeploymentTerm[],
    isWanted: (row: DeploymentRow) => boolean,
  ): { row: DeploymentRow; seen: DeploymentTerm } | undefined {
    for (const seen of candidates) {
      const row = deployments.get(seen.id);
      if (!row || isLocked(row.id)) continue;
      if (row.generation !== seen.generation && holds("claim_sees_generation")) continue;
      if (isWanted(row)) return { row, seen };
    }
    return undefined;
  }

  const mayRun = (row: DeploymentRow, address: string): boolean =>
    (row.enabled || !holds("claim_sees_enabled")) &&
    row.type === "deployment" &&
    selects(row.selector, { address, labels: nodes.get(address)?.labels ?? {} });

  function giveTo(row: DeploymentRow, address: string): DeploymentRow {
    const generation = row.generation + (holds("claim_raises_generation") ? 1 : 0);
    return deployments.write(row.id, { address, generation, updated_at: new Date(nowMs()) });
  }

  function lostAtMs(address: string): number {
    const unit = nodes.get(address);
    if (!unit || !holds("release_sees_nodes")) return Number.NEGATIVE_INFINITY;
    return nodes.lostAtMs(unit);
  }

  /** After a silent loss not every present node-unit has been heard yet. */
  function waits({ address }: DeploymentRow): boolean {
    const unit = nodes.get(address);
    if (!unit || !(unit.online || unit.left_silently) || !holds("release_sees_nodes")) return false;
    const lostMs = nodes.lostAtMs(unit);
    const heardMs = nodes.allHeardSinceMs();
    const isRecent = lostMs >= nowMs() - SILENT_WAIT_MS && lostMs <= nowMs();
    return isRecent && heardMs !== undefined && heardMs <= lostMs;
  }

  function isBraked(addresses: readonly string[]): boolean {
    if (!holds("release_sees_brake")) return false;
    if (nodes.brake().active) return true;
    const { brakeTtlMs } = options;
    return brakeTtlMs !== undefined && nodes.isMassLoss(brakeTtlMs, addresses);
  }

  const isLost = (row: DeploymentRow): boolean => {
    const patienceMs = holds("release_sees_patience") ? row.lost_after_ms : 0;
    return lostAtMs(row.address) + patienceMs <= nowMs();
  };

  const moveOf = ({ id, generation }: MoveStep): DeploymentRow | undefined => {
    const row = deployments.get(id);
    return row?.generation === generation ? row : undefined;
  };

  const leadsNowhere = (row: DeploymentRow): boolean => {
    const next = nodes.get(row.moving_to);
    const isPinned = row.selector.address === row.moving_to;
    const isThere =
      next &&
      nodes.isPresent(next) &&
      !next.draining &&
      (next.claim_policy !== "none" || isPinned) &&
      selects(row.selector, next);
    const isLate =
      row.move_state === "installing" && row.updated_at.getTime() < nowMs() - INSTALL_LIMIT_MS;
    const isMeant = isPinned || nodes.get(row.address)?.draining;
    return !row.enabled || row.type !== "deployment" || !isThere || !isMeant || isLate;
  };

  return {
    deployments,
    nodes,
    claimFirstFree(caller, candidates) {
      const refused = refusal(caller);
      if (refused) return refused;
      const { address } = caller;
      const isFree = (row: DeploymentRow) =>
        row.address === "" ||
        (row.moving_to === address && row.move_state === "stopped") ||
        !holds("claim_sees_owner");
      const found = firstOf(candidates, (row) => isFree(row) && mayRun(row, address));
      if (!found) return { outcome: "conflict" };
      const after = giveTo(found.row, address);
      onOwner({ kind: "claim", by: caller, seen: found.seen, before: found.row, after });
      return { outcome: "claimed", claim: { id: after.id, generation: after.generation } };
    },
    reserveFirst(caller, candidates) {
      // The statement takes a caller that never was for one who lost a race; no server lets such a caller in.
      if (!nodes.get(caller.address)) return { outcome: "conflict" };
      const refused = refusal(caller);
      if (refused) return refused;
      const { address } = caller;
      const isOffered = (row: DeploymentRow) =>
        nodes.get(row.address)?.draining === true &&
        row.address !== address &&
        row.moving_to === "" &&
        !deployments.isAnyMoving(row.address) &&
        mayRun(row, address);
      const found = firstOf(candidates, isOffered);
      if (!found) return { outcome: "conflict" };
      const { id, generation } = found.row;
      deployments.write(id, {
        moving_to: address,
        move_state: "installing",
        updated_at: new Date(nowMs()),
      });
      return { outcome: "claimed", claim: { id, generation } };
    },
    releaseLost(caller, addresses) {
      const me = nodes.get(caller.address);
      if (!isCurrent(me, caller.epoch)) return { outcome: "refused", why: "replaced" };
      if (me.claim_policy === "none" && holds("release_sees_policy"))
        return { outcome: "refused", why: "policy_none" };
      if (isBraked(addresses)) return { outcome: "released", released: [], waitsSince: null };
      const owned = [...new Set(addresses)]
        .filter((address) => address !== "")
        .flatMap((address) => deployments.ownedBy(address))
        .filter(
          (row) => row.enabled && row.type === "deployment" && !isLocked(row.id) && isLost(row),
        );
      const lost = owned.filter((row) => !waits(row));
      const waiting = owned.filter(waits).map(({ address }) => lostAtMs(address));
      const waitsSince = waiting.length > 0 ? String(Math.max(...waiting)) : null;
      const released = lost.map((before) => {
        const after = deployments.write(before.id, {
          address: "",
          generation: before.generation + 1,
          updated_at: new Date(nowMs()),
        });
        onOwner({ kind: "release", by: caller, seen: undefined, before, after });
        return { id: after.id, generation: after.generation, address: before.address };
      });
      return { outcome: "released", released, waitsSince };
    },
    markMoveReady(step) {
      const row = moveOf(step);
      if (row?.moving_to !== step.address || row.move_state !== "installing") return false;
      deployments.write(row.id, { move_state: "ready" });
      return true;
    },
    giveMoveBack(step) {
      const row = moveOf(step);
      if (row?.moving_to !== step.address) return false;
      deployments.write(row.id, { moving_to: "" });
      return true;
    },
    markStopped(step) {
      const row = moveOf(step);
      if (row?.address !== step.address || row.move_state !== "ready") return false;
      deployments.write(row.id, { move_state: "stopped" });
      return true;
    },
    dropDeadMoves() {
      const dead = deployments.moving().filter(leadsNowhere);
      for (const { id } of dead) deployments.write(id, { moving_to: "" });
      return dead.length;
    },
  };
}
