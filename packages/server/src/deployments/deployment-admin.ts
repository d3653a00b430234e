import {
  ADDRESS_SELECTOR,
  DEFAULT_TENANT,
  type DeploymentCreate,
  type DeploymentPatch,
  type DeploymentRevision,
  type DeploymentView,
  type DeploymentWhy,
  ERRORS,
  type FenceCheck,
  isDeploymentType,
  isExactVersion,
  issueText,
  type List,
  type MatchWhole,
  notExact,
  sharesTenant,
  TenureError,
} from "@tenure/protocol";
import { type Act, actorDetails, recorded } from "../audit/actor.ts";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import type { Db } from "../store/db.ts";
import { appendEvent, appendEventOnce, type NewEvent } from "../store/event-store.ts";
import {
  type DeploymentRow,
  isPast,
  renderDeployment,
  renderStatus,
  type StatusRow,
} from "./deployment-row.ts";
import { createLogSource, type LogQuery } from "./log-source.ts";
import type { FollowedLog, NodeRelay } from "./node-relay.ts";
import {
  changeDeployment,
  createDeployment,
  type DeploymentFilter,
  deleteDeployment,
  findDeployments,
  listDeployments,
  rollBackDeployment,
} from "./store/deployment-store.ts";
import { beginPinnedMoves } from "./store/move-store.ts";
import { findRevision, listRevisions } from "./store/revision-store.ts";
import { isUnreadable } from "./store/row-reader.ts";
import { forgetLostAfter, listStatuses } from "./store/status-store.ts";
import { explain, type WhyInput } from "./why.ts";

export interface DeploymentAdminOptions {
  db: Db;
  newId: () => string;
  relay: NodeRelay;
  /** Resolves when this instance's copy has what was just written. */
  refresh: () => Promise<void>;
  /** What `why` looks at besides the deployment's own rows: the nodes that are present, and `also` these, by address or name. */
  surroundings: (
    scope: Scope,
    also: readonly string[],
  ) => Promise<Pick<WhyInput, "nodes" | "view" | "brake" | "nowMs">>;
  matches: MatchWhole;
}

/** Who writes, and what of. */
interface By {
  scope: Scope;
  act?: Act | undefined;
}

export interface DeploymentAdmin {
  list(filter: DeploymentFilter): Promise<List<DeploymentView>>;
  create(by: By, body: DeploymentCreate & { tenant: string }): Promise<DeploymentView>;
  read(scope: Scope, id: string): Promise<DeploymentView>;
  update(by: By, id: string, body: DeploymentPatch): Promise<DeploymentView>;
  remove(by: By, id: string): Promise<void>;
  restart(by: By, id: string, forwarded: boolean): Promise<DeploymentView>;
  rollBack(by: By, id: string, revision: number | undefined): Promise<DeploymentView>;
  /** Newest first; `before` is the last one of the page before. */
  revisions(
    scope: Scope,
    id: string,
    page: { limit: number; before?: number | undefined },
  ): Promise<{ items: DeploymentRevision[]; last: number | undefined }>;
  /** Without errors: not what its program wrote before it ended. */
  why(scope: Scope, id: string, options: { withErrors: boolean }): Promise<DeploymentWhy>;
  fence(scope: Scope, id: string, generation: number): Promise<FenceCheck>;
  readLog(scope: Scope, id: string, query: LogQuery): ReturnType<NodeRelay["readLog"]>;
  followLog(scope: Scope, id: string, query: LogQuery, signal: AbortSignal): Promise<FollowedLog>;
}

/** What operators ask of the deployments. */
export function createDeploymentAdmin(options: DeploymentAdminOptions): DeploymentAdmin {
  const { db, relay } = options;
  const logOf = createLogSource({ ...options, statusesOf: (id) => statusesOf([id]) });

  /** The one deployment of the scope with this id or name. What belongs to another tenant does not exist. */
  async function find(scope: Scope, id: string): Promise<DeploymentRow> {
    const [row, another] = await findDeployments(db, scope, id);
    if (!row) throw new TenureError("NOT_FOUND", { what: "deployment", id });
    if (another) {
      const reason = `deployments of several tenants are named ${id}; say which with ?tenant= or by its id`;
      throw new TenureError("CONFLICT", { reason });
    }
    return row;
  }

  /** A row that cannot be read is left out, and said once. */
  async function statusesOf(ids: readonly string[]): Promise<StatusRow[]> {
    const { statuses, skipped } = await listStatuses(db, ids);
    for (const { deployment_id, address, issues } of skipped) {
      const what = `what node ${address} reported`;
      await appendEventOnce(db, {
        event: "status.skipped",
        code: "ERR_INVALID_ROW",
        message: ERRORS.ERR_INVALID_ROW.message({ what, reason: issueText(issues) }),
        subject: deployment_id,
        details: { address, issues },
      });
    }
    return statuses;
  }

  async function view(row: DeploymentRow): Promise<DeploymentView> {
    return viewOf(row, await statusesOf([row.id]), await presentNodes());
  }

  /** The addresses of the node-units that are there. */
  async function presentNodes(): Promise<ReadonlySet<string>> {
    const { nodes } = await options.surroundings(EVERYTHING, []);
    return new Set(nodes.filter((node) => node.present).map(({ address }) => address));
  }

  /** After a write: tell it, and let this instance's next answers know it. */
  async function written(
    row: DeploymentRow,
    told: Pick<NewEvent, "event"> & { says: string; act: Act | undefined },
  ) {
    const { id, name, revision, generation } = row;
    const { event, says, act } = told;
    const message = `deployment ${name} was ${says}`;
    const details = { revision, generation, ...actorDetails(act) };
    await appendEvent(db, { event, message, subject: id, details });
    await options.refresh();
    return view(row);
  }

  return {
    async list(filter) {
      const rows = await listDeployments(db, { ...filter, limit: filter.limit + 1 });
      const page = rows.slice(0, filter.limit);
      const statuses = await statusesOf(page.map(({ id }) => id));
      const present = await presentNodes();
      return {
        items: page.map((row) => viewOf(row, statuses, present)),
        next_cursor: rows.length > filter.limit ? cursorAfter(page.at(-1)!) : null,
      };
    },
    async create({ scope, act }, body) {
      refuseBadSpec(NEW_ROW, body);
      await refuseForeignPin(scope, body);
      const row = await recorded(db, act, {
        write: (tx) => createDeployment(tx, options.newId(), body),
        subjectOf: (created) => created?.id,
      });
      if (!row) throw nameTaken(body.name ?? "");
      return written(row, { event: "deployment.created", says: "created", act });
    },
    read: async (scope, id) => view(await find(scope, id)),
    async update({ scope, act }, id, body) {
      const before = await find(scope, id);
      refuseBadSpec(before, body);
      await refuseForeignPin(scope, body);
      const { if_revision: ifRevision, ...change } = body;
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
      const says = tenant === before.tenant ? "changed" : `moved to tenant ${tenant}`;
      const after = await find(EVERYTHING, row.id);
      return written(after, { event: "deployment.changed", says, act });
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
      const how = { forwarded, actor: act?.actor };
      const running = await relay.restart(row.id, await runnersOf(row), how);
      if (running === 0 && !forwarded) {
        throw new TenureError("CONFLICT", { reason: `deployment ${row.name} runs on no node` });
      }
      return forwarded
        ? view(row)
        : written(row, { event: "deployment.restarted", says: "restarted", act });
    },
    async rollBack({ scope, act }, id, revision) {
      const row = await find(scope, id);
      const found = await findRevision(db, row.id, revision);
      if (found && "invalid" in found) {
        const what = `revision ${revision ?? ""} of deployment ${row.name}`;
        throw new TenureError("ERR_INVALID_ROW", { what, reason: issueText(found.invalid) });
      }
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
      return written(back, { event: "deployment.rolled-back", says: "rolled back", act });
    },
    revisions: async (scope, id, page) =>
      listRevisions(db, { ...page, id: (await find(scope, id)).id }),
    async why(scope, id, { withErrors }) {
      const row = await find(scope, id);
      const known = await statusesOf([row.id]);
      const statuses = withErrors ? known : known.map((one) => ({ ...one, last_error: null }));
      const named = [row.address, row.moving_to, row.selector.address ?? ""];
      const surroundings = await options.surroundings(
        scope,
        named.filter((name) => name !== ""),
      );
      return explain({ ...surroundings, row, statuses, matches: options.matches });
    },
    async fence(scope, id, generation) {
      const row = await find(scope, id);
      const fence = row.generation === generation ? "current" : "stale";
      return { deployment_id: row.id, fence, generation: row.generation };
    },
    readLog: async (scope, id, query) =>
      relay.readLog(await logOf(scope, await find(scope, id), query)),
    followLog: async (scope, id, query, signal) =>
      relay.followLog(await logOf(scope, await find(scope, id), query), signal),
  };

  /** A pin binds it to a node that the caller knows: one that is there and serves other tenants only does not exist. */
  async function refuseForeignPin(scope: Scope, { pin }: DeploymentPatch): Promise<void> {
    if (!pin) return;
    const known = (await options.surroundings(EVERYTHING, [pin])).nodes;
    const node = known.find(({ address }) => address === pin);
    if (node && !sharesTenant(node.tenants, scope.tenants))
      throw new TenureError("NOT_FOUND", { what: "node", id: pin });
  }

  /** Where it runs in this term, of the nodes that are there. */
  async function runnersOf(row: DeploymentRow): Promise<string[]> {
    if (row.type !== "daemon") return row.enabled && row.address !== "" ? [row.address] : [];
    const present = await presentNodes();
    const statuses = await statusesOf([row.id]);
    return statuses
      .filter(({ generation, address }) => generation === row.generation && present.has(address))
      .map(({ address }) => address);
  }
}

/** What is not given at a create. */
const NEW_ROW = { type: "deployment", package_name: "", package_version: "" };

/**
 * The refusals that have codes of their own, and the one way to an address. What a row has already, by SQL or from an
 * older version, is judged only when it is changed: such a row must still be possible to disable.
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
    throw new TenureError("INVALID_REQUEST", { reason: "address: changes only by pin" });
  if (pin && selector && Object.hasOwn(selector, ADDRESS_SELECTOR))
    throw new TenureError("INVALID_REQUEST", { reason: "selector: its address is set by pin" });
  const isNamed = body.package_name !== undefined || body.package_version !== undefined;
  if (isNamed && package_name !== "" && !isExactVersion(package_version))
    throw new TenureError("INVALID_REQUEST", { reason: notExact(package_version) });
}

function viewOf(
  row: DeploymentRow,
  statuses: readonly StatusRow[],
  present: ReadonlySet<string>,
): DeploymentView {
  const own = statuses.filter(({ deployment_id }) => deployment_id === row.id);
  const isPresent = (address: string) => present.has(address);
  const { invalid } = row;
  return {
    ...renderDeployment(row),
    status: own.map((status) => renderStatus(status, isPast(row, status, isPresent))),
    ...(invalid && { invalid: [...invalid] }),
  };
}

/** A name that is too long was cut: the next page begins after all names that begin like it. */
function cursorAfter({ tenant = DEFAULT_TENANT, ...row }: DeploymentRow): string {
  const stored = tenant === DEFAULT_TENANT ? row.name : `${tenant} ${row.name}`;
  return isUnreadable(row, "name") ? `${stored}\u{10ffff}` : stored;
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
