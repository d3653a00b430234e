import type { Db } from "../store/db.ts";
import { sql } from "../store/sql.ts";

interface MoveStep {
  id: string;
  address: string;
  generation: number;
}

/** The next node has it installed: the owner may stop. */
export async function markMoveReady(
  db: Db,
  { id, address, generation }: MoveStep,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment set move_state = 'ready'
     where id = ${id} and moving_to = ${address} and generation = ${generation} and move_state = 'installing'`);
  return rowCount === 1;
}

/** The next node cannot run it after all; it stays where it is. */
export async function giveMoveBack(
  db: Db,
  { id, address, generation }: MoveStep,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment set moving_to = '' where id = ${id} and moving_to = ${address} and generation = ${generation}`);
  return rowCount === 1;
}

/** The owner has stopped its child: the next node may claim it. */
export async function markStopped(db: Db, { id, address, generation }: MoveStep): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update deployment set move_state = 'stopped'
     where id = ${id} and address = ${address} and generation = ${generation} and move_state = 'ready'`);
  return rowCount === 1;
}

const INSTALL_LIMIT_MS = 10 * 60_000;

/** Reservations that lead nowhere: the next node is gone or silent, or the drain has ended. */
export async function dropDeadMoves(db: Db): Promise<number> {
  const { rowCount } = await db.query(sql`
    update deployment
       set moving_to = ''
     where moving_to <> ''
       and (not exists (select from node_unit
                         where address = moving_to and online and presence_expires_at > tenure_now() and not draining)
            or not exists (select from node_unit where node_unit.address = deployment.address and draining)
            or (move_state = 'installing' and updated_at < tenure_now() - ${INSTALL_LIMIT_MS} * interval '1 ms'))`);
  return rowCount;
}
