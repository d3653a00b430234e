import {
  ADDRESS_SELECTOR,
  type DeploymentCreate,
  type DeploymentPatch,
  type DeploymentRevision,
  type DeploymentView,
  type DeploymentWhy,
  type FenceCheck,
  isDeploymentType,
  type List,
  type MatchWhole,
  TenureError,
} from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import { appendEvent, type NewEvent } from "../store/event-store.ts";
import { type DeploymentRow, renderDeployment, renderStatus } from "./deployment-row.ts";
import {
  changeDeployment,
  createDeployment,
  type DeploymentFilter,
  deleteDeployment,
  findDeployment,
  listDeployments,
  rollBackDeployment,
} from "./deployment-store.ts";
import type { FollowedLog, LogRequest, NodeRelay } from "./node-relay.ts";
import { listRevisions } from "./revision-store.ts";
import { listStatuses } from "./status-store.ts";
import { explain, type WhyInput } from "./why.ts";

export interface DeploymentAdminOptions {
  db: Db;
  newId: () => string;
  relay: NodeRelay;
  /** Resolves when this instance's copy has what was just written. */
  refresh: () => Promise<void>;
  /** What `why` looks at besides the deployment's own rows. */
  surroundings: () => Pick<WhyInput, "nodes" | "view" | "brake" | "nowMs">;
  matches: MatchWhole;
}

type LogQuery = Omit<LogRequest, "deployment_id" | "address"> & { node?: string | undefined };

export interface DeploymentAdmin {
  list(filter: DeploymentFilter): Promise<List<DeploymentView>>;
  create(body: DeploymentCreate): Promise<DeploymentView>;
  read(id: string): Promise<DeploymentView>;
  update(id: string, body: DeploymentPatch): Promise<DeploymentView>;
  remove(id: string): Promise<void>;
  restart(id: string, forwarded: boolean): Promise<DeploymentView>;
  rollBack(id: string, revision: number | undefined): Promise<DeploymentView>;
  /** Newest first; `before` is the last one of the page before. */
  revisions(
    id: string,
    page: { limit: number; before?: number | undefined },
  ): Promise<DeploymentRevision[]>;
  why(id: string): Promise<DeploymentWhy>;
  fence(id: string, generation: number): Promise<FenceCheck>;
  readLog(id: string, query: LogQuery): ReturnType<NodeRelay["readLog"]>;
  followLog(id: string, query: LogQuery, signal: AbortSignal): Promise<FollowedLog>;
}

/** What operators ask of the deployments. */
export function createDeploymentAdmin(options: DeploymentAdminOptions): DeploymentAdmin {
  const { db, relay } = options;

  async function find(id: string): Promise<DeploymentRow> {
    const row = await findDeployment(db, id);
    if (!row) throw new TenureError("NOT_FOUND", { what: "deployment", id });
    return row;
  }

  async function view(row: DeploymentRow): Promise<DeploymentView> {
    return viewOf(row, await listStatuses(db, [row.id]));
  }

  /** After a write: tell it, and let this instance's next answers know it. */
  async function written(row: DeploymentRow, told: Pick<NewEvent, "event"> & { says: string }) {
    const { id, name, revision, generation } = row;
    const { event, says } = told;
    const message = `deployment ${name} was ${says}`;
    await appendEvent(db, { event, message, subject: id, details: { revision, generation } });
    await options.refresh();
    return view(row);
  }

  async function logRequest(id: string, { node, ...rest }: LogQuery): Promise<LogRequest> {
    const row = await find(id);
    const address = node === undefined ? await lastRunner(row) : addressOf(node);
    return { ...rest, deployment_id: row.id, address };
  }

  /** The node that ran it: its owner, else whoever spoke of it last. */
  async function lastRunner(row: DeploymentRow): Promise<string> {
    const statuses = await listStatuses(db, [row.id]);
    const own = statuses.find(({ address }) => address === row.address);
    const address = own?.address ?? statuses[0]?.address ?? row.address;
    if (address !== "") return address;
    throw new TenureError("NOT_FOUND", { what: "log of deployment", id: row.name });
  }

  function addressOf(node: string): string {
    const { nodes } = options.surroundings();
    const found =
      nodes.find(({ address }) => address === node) ??
      nodes.find(({ name, present }) => name === node && present) ??
      nodes.find(({ name }) => name === node);
    if (!found) throw new TenureError("NOT_FOUND", { what: "node", id: node });
    return found.address;
  }

  return {
    async list(filter) {
      const rows = await listDeployments(db, { ...filter, limit: filter.limit + 1 });
      const page = rows.slice(0, filter.limit);
      const statuses = await listStatuses(
        db,
        page.map(({ id }) => id),
      );
      return {
        items: page.map((row) => viewOf(row, statuses)),
        next_cursor: rows.length > filter.limit ? page.at(-1)!.name : null,
      };
    },
    async create(body) {
      refuseBadSpec({ type: "deployment", selector: {} }, body);
      const row = await createDeployment(db, options.newId(), body);
      if (!row) throw nameTaken(body.name ?? "");
      return written(row, { event: "deployment.created", says: "created" });
    },
    read: async (id) => view(await find(id)),
    async update(id, body) {
      const before = await find(id);
      refuseBadSpec(before, body);
      const { if_revision, ...change } = body;
      const row = await changeDeployment(db, before.id, {
        ...change,
        ifRevision: if_revision,
      }).catch((error: unknown) => {
        if ((error as { code?: string }).code === "23505") throw nameTaken(body.name ?? "");
        throw error;
      });
      if (row) return written(row, { event: "deployment.changed", says: "changed" });
      const { revision } = await find(before.id);
      throw new TenureError("CONFLICT", {
        reason: `deployment ${before.name} is at revision ${revision}, not ${if_revision}`,
      });
    },
    async remove(id) {
      const row = await find(id);
      if (!(await deleteDeployment(db, row.id)))
        throw new TenureError("NOT_FOUND", { what: "deployment", id });
      await appendEvent(db, {
        event: "deployment.deleted",
        message: `deployment ${row.name} was deleted`,
        subject: row.id,
        details: { generation: row.generation },
      });
      await options.refresh();
    },
    async restart(id, forwarded) {
      const row = await find(id);
      const running = await relay.restart(row.id, await runnersOf(row), forwarded);
      if (running === 0 && !forwarded) {
        throw new TenureError("CONFLICT", { reason: `deployment ${row.name} runs on no node` });
      }
      return forwarded
        ? view(row)
        : written(row, { event: "deployment.restarted", says: "restarted" });
    },
    async rollBack(id, revision) {
      const row = await find(id);
      const back = await rollBackDeployment(db, row.id, revision);
      if (!back) {
        const what = `former revision of deployment ${row.name}`;
        throw new TenureError("NOT_FOUND", { what, id: String(revision ?? "") });
      }
      return written(back, { event: "deployment.rolled-back", says: "rolled back" });
    },
    revisions: async (id, page) => listRevisions(db, { ...page, id: (await find(id)).id }),
    async why(id) {
      const row = await find(id);
      const statuses = await listStatuses(db, [row.id]);
      return explain({ ...options.surroundings(), row, statuses, matches: options.matches });
    },
    async fence(id, generation) {
      const row = await find(id);
      const fence = row.generation === generation ? "current" : "stale";
      return { deployment_id: row.id, fence, generation: row.generation };
    },
    readLog: async (id, query) => relay.readLog(await logRequest(id, query)),
    followLog: async (id, query, signal) => relay.followLog(await logRequest(id, query), signal),
  };

  /** Where it runs in this term, of the nodes that are there. */
  async function runnersOf(row: DeploymentRow): Promise<string[]> {
    const present = new Set(
      options
        .surroundings()
        .nodes.filter((node) => node.present)
        .map(({ address }) => address),
    );
    if (row.type !== "daemon") return row.enabled && row.address !== "" ? [row.address] : [];
    const statuses = await listStatuses(db, [row.id]);
    return statuses
      .filter(({ generation, address }) => generation === row.generation && present.has(address))
      .map(({ address }) => address);
  }
}

/** The refusals that have codes of their own, and the one way to an address. */
function refuseBadSpec(
  before: { type: string; selector: Record<string, string> },
  { type = before.type, address = "", pin, selector }: DeploymentPatch,
): void {
  if (!isDeploymentType(type)) throw new TenureError("ERR_INVALID_TYPE", { type });
  if (type === "daemon" && (address !== "" || pin))
    throw new TenureError("ERR_DAEMON_ADDRESS_SET", { address: pin ?? address });
  if (address !== "")
    throw new TenureError("INVALID_REQUEST", { reason: "address: changes only by pin" });
  if (pin && selector && Object.hasOwn(selector, ADDRESS_SELECTOR))
    throw new TenureError("INVALID_REQUEST", { reason: "selector: its address is set by pin" });
}

function viewOf(
  row: DeploymentRow,
  statuses: Awaited<ReturnType<typeof listStatuses>>,
): DeploymentView {
  const own = statuses.filter(({ deployment_id }) => deployment_id === row.id);
  return { ...renderDeployment(row), status: own.map(renderStatus) };
}

const nameTaken = (name: string): TenureError =>
  new TenureError("CONFLICT", { reason: `another deployment is named ${name}` });
