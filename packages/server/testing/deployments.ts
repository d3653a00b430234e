import { randomUUID } from "node:crypto";
import type { DeploymentRow } from "../src/deployments/deployment-row.ts";
import {
  createDeployment,
  type DeploymentChange,
} from "../src/deployments/store/deployment-store.ts";
import {
  joinNodeUnit,
  type NewNodeUnit,
  nextEpochs,
} from "../src/membership/store/node-unit-store.ts";
import type { Db } from "../src/store/db.ts";
import { sql } from "../src/store/sql.ts";

export const PRESENCE_TTL_MS = 45_000;

/** A node-unit that is there, with a connection of its own. */
export async function joinUnit(
  db: Db,
  address: string,
  changes: Partial<NewNodeUnit> = {},
): Promise<{ address: string; epoch: number }> {
  const [epoch] = await nextEpochs(db, 1);
  const unit: NewNodeUnit = {
    address,
    name: address,
    version: "1",
    instance_id: "a",
    boot_id: randomUUID(),
    epoch: epoch!,
    claim_policy: "deployment_count",
    labels: {},
    trusted_package_regexp: ".*",
    custom_command: true,
    tags: { node_unit: true },
    ...changes,
  };
  if (!(await joinNodeUnit(db, unit, PRESENCE_TTL_MS)))
    throw new Error(`${address} was not let in`);
  return { address, epoch: epoch! };
}

export async function addDeployment(
  db: Db,
  changes: DeploymentChange & { address?: string } = {},
): Promise<DeploymentRow> {
  const { address, ...change } = changes;
  const spec = { package_name: "web", package_version: "1.0.0", ...change };
  const row = await createDeployment(db, randomUUID(), spec);
  if (!row) throw new Error("the name is taken");
  if (address === undefined) return row;
  return assign(db, row.id, address);
}

/** As a person with SQL would do it. */
export async function assign(db: Db, id: string, address: string): Promise<DeploymentRow> {
  const { rows } = await db.query<DeploymentRow>(
    sql`update deployment set address = ${address} where id = ${id} returning *`,
  );
  return rows[0]!;
}

export async function readDeployment(db: Db, id: string): Promise<DeploymentRow> {
  const { rows } = await db.query<DeploymentRow>(sql`select * from deployment where id = ${id}`);
  return rows[0]!;
}

export const termOf = ({ id, generation }: DeploymentRow) => ({ id, generation });
