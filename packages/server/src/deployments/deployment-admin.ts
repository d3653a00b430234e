import {
  ADDRESS_SELECTOR,
  type DeploymentCreate,
  type DeploymentPatch,
  type DeploymentView,
  isDeploymentType,
  isExactVersion,
  issueText,
  notExact,
  secretsOf,
  TenureError,
} from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import { appendEvent, type NewEvent } from "../store/event-store.ts";
import {
  createDeploymentQueries,
  type DeploymentQueries,
  type QueriesOptions,
} from "./deployment-queries.ts";
import { type DeploymentRow, tenantOf } from "./deployment-row.ts";
import {
  changeDeployment,
  createDeployment,
  deleteDeployment,
  rollBackDeployment,
} from "./store/deployment-store.ts";
import { beginPinnedMoves } from "./store/move-store.ts";
import { findRevision } from "./store/revision-store.ts";
import { forgetLostAfter } from "./store/status-store.ts";

export interface DeploymentAdminOptions extends QueriesOptions {
  newId: () => string;
  /** Resolves when this instance's cache has what was written before the call. */
  refresh: () => Promise<void>;
}

/** The caller of a write, and the tenants it may write. */
interface By {
  scope: Scope;
  act?: Act | undefined;
}

/** What operators do with deployments. */
export interface DeploymentAdmin extends DeploymentQueries {
  create(by: By, body: DeploymentCreate & { tenant: string }): Promise<DeploymentView>;
  update(by: By, id: string, body: DeploymentPatch): Promise<DeploymentView>;
  remove(by: By, id: string): Promise<void>;
  restart(by: By, id: string, forwarded: boolean): Promise<DeploymentView>;
  rollBack(by: By, id: string, revision: number | undefined): Promise<DeploymentView>;
}

export function createDeploymentAdmin(options: DeploymentAdminOptions): DeploymentAdmin {
  const { db, relay } = options;
  const queries = createDeploymentQueries(options);
  const { find, view, runnersOf } = queries;

  /** Stores the event of a write and refreshes the cache, so that this instance's next answers have it. */
  async function written(
    row: DeploymentRow,
    { event, outcome, act }: Pick<NewEvent, "event"> & { outcome: string; act: Act | undefined },
  ) {
    const { id, name, revision, generation } = row;
    const message = `deployment ${name} was ${outcome}`;
    const details = { revision, generation, ...actorDetails(act) };
    await appendEvent(db, { event, message, subject: id, details });
    await options.refresh();
    return view(row);
  }

  /** A removed secret is no reason to refuse another change, so this is asked only where `env` or the tenant changes. */
  async function refuseMissingSecrets(tenant: string, env: DeploymentRow["env"] = {}) {
    const missing = await options.secrets.missing(tenant, secretsOf(env));
    if (missing.length === 0) return;
    const issues = Object.entries(env).flatMap(([name, value]) =>
      typeof value !== "string" && missing.includes(value.secret)
        ? [{ path: `env.${name}`, message: `secret ${value.secret} does not exist` }]
        : [],
    );
    const reason = `env: tenant ${tenant} has no secret ${missing.join(", ")}`;
    throw new TenureError("INVALID_REQUEST", { reason, issues });
  }

  return {
    ...queries,
    async create({ act }, body) {
      refuseBadSpec(NEW_ROW, body);
      await refuseMissingSecrets(body.tenant, body.env);
      const row = await recorded(db, act, {
        write: (tx) => createDeployment(tx, options.newId(), body),
        subjectOf: (created) => created?.id,
      });
      if (!row) throw nameTaken(body.name ?? "");
      return written(row, { event: "deployment.created", outcome: "created", act });
    },
    async update({ scope, act }, id, body) {
      const before = await find(scope, id);
      refuseBadSpec(before, body);
      const { if_revision: ifRevision, ...change } = body;
      if (body.env !== undefined || (body.tenant ?? tenantOf(before)) !== tenantOf(before))
        await refuseMissingSecrets(body.tenant ?? tenantOf(before), body.env ?? before.env);
      const row = await recorded(db, act, {
        write: (tx) => changeDeployment(tx, before.id, { ...change, ifRevision }),
        subjectOf: (changed) => changed?.id,
      }).catch((error: unknown) => {
        if ((error as { code?: string }).code === "23505")
          throw nameTaken(body.name ?? before.name);
        throw error;
      });
      if (!row) throw unchanged(await find(scope, before.id), body);
      if (body.force) await forgetLostAfter(db, row.id);
      await beginPinnedMoves(db);
      const { tenant } = row;
      const outcome = tenant === before.tenant ? "changed" : `moved to tenant ${tenant}`;
      const after = await find(EVERYTHING, row.id);
      return written(after, { event: "deployment.changed", outcome, act });
    },
    async remove({ scope, act }, id) {
      const row = await find(scope, id);
      const isDeleted = await recorded(db, act, {
        write: (tx) => deleteDeployment(tx, row.id),
        subjectOf: (deleted) => (deleted ? row.id : undefined),
      });
      if (!isDeleted) throw new TenureError("NOT_FOUND", { what: "deployment", id });
      await appendEvent(db, {
        event: "deployment.deleted",
        message: `deployment ${row.name} was deleted`,
        subject: row.id,
        details: { generation: row.generation, ...actorDetails(act) },
      });
      await options.refresh();
    },
    async restart({ scope, act }, id, forwarded) {
      const row = await find(scope, id);
      const how = { tenant: tenantOf(row), forwarded, actor: act?.actor };
      const running = await relay.restart(row.id, await runnersOf(row), how);
      if (running === 0 && !forwarded) {
        throw new TenureError("CONFLICT", { reason: `deployment ${row.name} runs on no node` });
      }
      return forwarded
        ? view(row)
        : written(row, { event: "deployment.restarted", outcome: "restarted", act });
    },
    async rollBack({ scope, act }, id, revision) {
      const row = await find(scope, id);
      const found = await findRevision(db, row.id, revision);
      if (found && "invalid" in found) {
        const what = `revision ${revision ?? ""} of deployment ${row.name}`;
        throw new TenureError("ERR_INVALID_ROW", { what, reason: issueText(found.invalid) });
      }
      if (found) await refuseMissingSecrets(tenantOf(row), found.spec.env);
      const back =
        found &&
        (await recorded(db, act, {
          write: (tx) => rollBackDeployment(tx, row.id, found.revision),
          subjectOf: (changed) => changed?.id,
        }));
      if (!back) {
        const what = `former revision of deployment ${row.name}`;
        throw new TenureError("NOT_FOUND", { what, id: String(revision ?? "") });
      }
      return written(back, { event: "deployment.rolled-back", outcome: "rolled back", act });
    },
  };
}

/** The defaults of a new deployment. */
const NEW_ROW = { type: "deployment", package_name: "", package_version: "" };

/**
 * Throws for a specification that node-units could not run. Values that the row has already, by SQL or from an older
 * version, are checked only when they change: it must be possible to disable such a row.
 */
function refuseBadSpec(
  before: { type: string; package_name: string; package_version: string },
  body: DeploymentPatch,
): void {
  const { type = before.type, address = "", pin, selector } = body;
  const { package_name = before.package_name, package_version = before.package_version } = body;
  if (!isDeploymentType(type)) throw new TenureError("ERR_INVALID_TYPE", { type });
  if (type === "daemon" && (address !== "" || pin))
    throw new TenureError("ERR_DAEMON_ADDRESS_SET", { address: pin ?? address });
  if (address !== "")
    throw new TenureError("INVALID_REQUEST", { reason: "address: cannot be set; use pin" });
  if (pin && selector && Object.hasOwn(selector, ADDRESS_SELECTOR))
    throw new TenureError("INVALID_REQUEST", {
      reason: "selector: address is set by pin; give only one of them",
    });
  const isNamed = body.package_name !== undefined || body.package_version !== undefined;
  if (isNamed && package_name !== "" && !isExactVersion(package_version))
    throw new TenureError("INVALID_REQUEST", { reason: notExact(package_version) });
}

/** Why a change was not made. */
function unchanged({ name, revision }: DeploymentRow, body: DeploymentPatch): TenureError {
  const { if_revision = revision, tenant } = body;
  const reason =
    if_revision === revision
      ? `deployment ${name} runs on a node that does not serve tenant ${tenant}; disable it first`
      : `deployment ${name} is at revision ${revision}, not ${if_revision}`;
  return new TenureError("CONFLICT", { reason });
}

const nameTaken = (name: string): TenureError =>
  new TenureError("CONFLICT", { reason: `another deployment is named ${name}` });
