import {
  DEFAULT_TENANT,
  type DeploymentRevision,
  type DeploymentView,
  type DeploymentWhy,
  ERRORS,
  type FenceCheck,
  issueText,
  type List,
  type MatchWhole,
  secretsOf,
  serves,
  TenureError,
} from "@tenure/protocol";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type { Db } from "../store/db.ts";
import { appendEventOnce } from "../store/event-store.ts";
import {
  type DeploymentRow,
  isPast,
  renderDeployment,
  renderStatus,
  type StatusRow,
  tenantOf,
} from "./deployment-row.ts";
import type { FollowedLogs } from "./followed-logs.ts";
import { createLogSource, type LogQuery } from "./log-source.ts";
import type { FollowedLog, NodeRelay } from "./node-relay.ts";
import {
  type DeploymentFilter,
  findDeployments,
  listDeployments,
} from "./store/deployment-store.ts";
import { listRevisions } from "./store/revision-store.ts";
import { isUnreadable } from "./store/row-reader.ts";
import { listStatuses } from "./store/status-store.ts";
import { explain, type WhyInput } from "./why.ts";

export interface QueriesOptions {
  db: Db;
  relay: NodeRelay;
  followed: Pick<FollowedLogs, "add">;
  /** The other inputs of `why`: the nodes that are present, those in `also` (by address or name), the view, the brake. */
  surroundings: (
    scope: Pick<Scope, "tenants">,
    also: readonly string[],
  ) => Promise<
    Pick<WhyInput, "nodes" | "view" | "nowMs"> & { brakeOf: (tenant: string) => WhyInput["brake"] }
  >;
  matches: MatchWhole;
  secrets: Pick<Secrets, "missing" | "problems">;
}

/** What operators read about deployments. */
export interface DeploymentQueries {
  list(filter: DeploymentFilter): Promise<List<DeploymentView>>;
  read(scope: Scope, id: string): Promise<DeploymentView>;
  /** Newest first; `before` is the last one of the page before. */
  revisions(
    scope: Scope,
    id: string,
    page: { limit: number; before?: number | undefined },
  ): Promise<{ items: DeploymentRevision[]; last: number | undefined }>;
  /** Without `withErrors` the answer leaves out what the program wrote before it ended. */
  why(scope: Scope, id: string, options: { withErrors: boolean }): Promise<DeploymentWhy>;
  fence(scope: Scope, id: string, generation: number): Promise<FenceCheck>;
  readLog(scope: Scope, id: string, query: LogQuery): ReturnType<NodeRelay["readLog"]>;
  /** Ends when `signal` aborts, and when the deployment leaves the scope. */
  followLog(scope: Scope, id: string, query: LogQuery, signal: AbortSignal): Promise<FollowedLog>;
}

/** The rows that queries and writes share. */
export interface DeploymentReads {
  find(scope: Scope, id: string): Promise<DeploymentRow>;
  view(row: DeploymentRow): Promise<DeploymentView>;
  runnersOf(row: DeploymentRow): Promise<string[]>;
}

export function createDeploymentQueries(
  options: QueriesOptions,
): DeploymentQueries & DeploymentReads {
  const { db, relay } = options;
  const logOf = createLogSource({ ...options, ownerOf, statusesOf: (id) => statusesOf([id]) });

  /** The one deployment of the scope with this id or name. A deployment of another tenant is not found. */
  async function find(scope: Scope, id: string): Promise<DeploymentRow> {
    const [row, another] = await findDeployments(db, scope, id);
    if (!row) throw new TenureError("NOT_FOUND", { what: "deployment", id });
    if (another) {
      const reason = `deployments of several tenants are named ${id}; choose one with ?tenant= or by its id`;
      throw new TenureError("CONFLICT", { reason });
    }
    return row;
  }

  /** A row that cannot be read is left out and reported once as an event. */
  async function statusesOf(ids: readonly string[]): Promise<StatusRow[]> {
    const { statuses, skipped } = await listStatuses(db, ids);
    for (const { deployment_id, address, issues } of skipped) {
      const what = `the report of node ${address}`;
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

  /** The addresses of the node-units that are present, of these tenants. */
  async function presentNodes(
    scope: Pick<Scope, "tenants"> = EVERYTHING,
  ): Promise<ReadonlySet<string>> {
    const { nodes } = await options.surroundings(scope, []);
    return new Set(nodes.filter((node) => node.present).map(({ address }) => address));
  }

  /** "" for a node that is not known. One that does not serve the tenant is answered like it. */
  async function ownerOf(row: DeploymentRow): Promise<string> {
    const { address } = row;
    if (address === "") return "";
    const { nodes } = await options.surroundings(EVERYTHING, [address]);
    const owner = nodes.find((node) => node.address === address);
    return owner && serves(owner.tenants, tenantOf(row)) ? address : "";
  }

  /** The present nodes that run the deployment in this term. */
  async function runnersOf(row: DeploymentRow): Promise<string[]> {
    if (row.type !== "daemon") {
      const owner = row.enabled ? await ownerOf(row) : "";
      return owner === "" ? [] : [owner];
    }
    const present = await presentNodes({ tenants: [tenantOf(row)] });
    const statuses = await statusesOf([row.id]);
    return statuses
      .filter(({ generation, address }) => generation === row.generation && present.has(address))
      .map(({ address }) => address);
  }
  return {
    find,
    view,
    runnersOf,
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
    read: async (scope, id) => view(await find(scope, id)),
    revisions: async (scope, id, page) =>
      listRevisions(db, { ...page, id: (await find(scope, id)).id }),
    async why(scope, id, { withErrors }) {
      const row = await find(scope, id);
      const known = await statusesOf([row.id]);
      const statuses = withErrors ? known : known.map((one) => ({ ...one, last_error: null }));
      const named = [row.address, row.moving_to, row.selector.address ?? ""];
      const { brakeOf, ...surroundings } = await options.surroundings(
        scope,
        named.filter((name) => name !== ""),
      );
      const { active, ...counts } = brakeOf(tenantOf(row));
      const brake = scope.operates ? { active, ...counts } : { active };
      const secretProblems = await options.secrets.problems(tenantOf(row), secretsOf(row.env));
      const { matches } = options;
      return explain({ ...surroundings, brake, row, statuses, matches, secretProblems });
    },
    async fence(scope, id, generation) {
      const row = await find(scope, id);
      const fence = row.generation === generation ? "current" : "stale";
      return { deployment_id: row.id, fence, generation: row.generation };
    },
    readLog: async (scope, id, query) =>
      relay.readLog(await logOf(scope, await find(scope, id), query)),
    async followLog(scope, id, query, signal) {
      const { id: found } = await find(scope, id);
      const left = options.followed.add(scope, found, signal);
      // Read again: the deployment may have left between the first read and `add`.
      const request = await logOf(scope, await find(scope, found), query);
      return relay.followLog(request, { signal, left });
    },
  };
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
    grants: row.grants ?? {},
    status: own.map((status) => renderStatus(status, isPast(row, status, isPresent))),
    ...(invalid && { invalid: [...invalid] }),
  };
}

/** A name that was too long is cut: the next page then begins after all names with that prefix. */
function cursorAfter({ tenant = DEFAULT_TENANT, ...row }: DeploymentRow): string {
  const stored = tenant === DEFAULT_TENANT ? row.name : `${tenant} ${row.name}`;
  return isUnreadable(row, "name") ? `${stored}\u{10ffff}` : stored;
}
