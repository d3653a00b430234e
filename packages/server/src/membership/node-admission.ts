import { isTenureError, type NodeRegister, TenureError } from "@tenure/protocol";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { isUnrenewedBoot, requestConfirmation } from "./store/confirmation-store.ts";
import {
  joinNodeUnit,
  joinNodeUnits,
  type NewNodeUnit,
  type NodeUnitRow,
} from "./store/node-unit-store.ts";
import { readPresence } from "./store/snapshot-store.ts";

/** How long a node-unit may take to answer the ping of a confirmation. */
export const CONFIRM_LIMIT_MS = 1_000;
/** Time for the instances to ping their node-units and to write the results. */
const TAKEOVER_LIMIT_MS = 2 * CONFIRM_LIMIT_MS;
const TAKEOVER_POLL_MS = 50;

/** Admits a node under its address, or throws `NODE_ADDRESS_IN_USE` while another process answers under it. */
export function createNodeAdmission(options: {
  db: Db;
  hot: HotStore;
  clock: Clock;
  presenceTtlMs: number;
}) {
  const { db, hot, clock, presenceTtlMs } = options;
  const joinOne = (unit: NewNodeUnit) => joinNodeUnit(db, unit, presenceTtlMs);
  const joinTogether = batchWhileBusy<NewNodeUnit, NodeUnitRow | undefined>(async (units) => {
    const joined = await joinNodeUnits(db, units, presenceTtlMs);
    return units.map(({ address }) => joined.get(address));
  });

  /** A fleet that comes back joins by the hundred: one statement and one commit for those that wait. */
  async function join(unit: NewNodeUnit): Promise<NodeUnitRow | undefined> {
    try {
      return await joinTogether(unit);
    } catch (error) {
      if (isTenureError(error, "DEPENDENCY_DOWN")) throw error;
      // Rolled back: what Postgres refuses of one, or an address that is there twice, must not keep the others out.
      return joinOne(unit);
    }
  }

  /**
   * Admits the successor of the row's boot once every instance has found that the former process does not answer. It may
   * answer: a copied data directory names the boot of the original, too.
   */
  async function takeOver(
    unit: NewNodeUnit,
    formerBootId: string | undefined,
  ): Promise<NodeUnitRow | undefined> {
    if (formerBootId === undefined) return undefined;
    const askedAt = await requestConfirmation(db);
    const former = { address: unit.address, bootId: formerBootId, since: askedAt };
    const giveUpAtMs = clock.monotonicMs() + TAKEOVER_LIMIT_MS;
    while ((await isUnrenewedBoot(db, former)) && clock.monotonicMs() < giveUpAtMs) {
      await clock.sleep(TAKEOVER_POLL_MS);
      const row = await joinNodeUnit(db, unit, presenceTtlMs, { formerBootId, askedAt });
      if (row) return row;
    }
    return undefined;
  }

  return {
    async admitUnit(unit: NewNodeUnit, formerBootId: string | undefined): Promise<NodeUnitRow> {
      const row = (await join(unit)) ?? (await takeOver(unit, formerBootId));
      if (!row) throw new TenureError("NODE_ADDRESS_IN_USE", { address: unit.address });
      return row;
    },
    /** A node that is no node-unit has no row: the hot store knows which process has its address. */
    async admitWorker({ address, boot_id }: NodeRegister): Promise<void> {
      const present = await readPresence(hot, address);
      if (present && present.bootId !== boot_id)
        throw new TenureError("NODE_ADDRESS_IN_USE", { address });
    },
  };
}
