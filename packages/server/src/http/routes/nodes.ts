import {
  ANY_TENANT,
  type Brake,
  DEFAULT_TENANT,
  type List,
  type Member,
  type NodeView,
  ROUTES,
  serves,
  TenureError,
  type ViewState,
} from "@tenure/protocol";
import type { Act } from "../../audit/actor.ts";
import type { Scope } from "../../kernel/scope.ts";
import { membersFor } from "../../membership/visible-members.ts";
import { type Served, serve } from "../route.ts";
import { requireOperator } from "../scope.ts";

export interface NodesSource {
  page: (filter: {
    scope: Scope;
    online?: boolean | undefined;
    nodeUnit?: boolean | undefined;
    after: string;
    limit: number;
  }) => Promise<NodeView[]>;
  /** Those with this address or name. */
  find: (scope: Scope, id: string) => Promise<NodeView[]>;
  setDraining: (node: NodeView, draining: boolean, act?: Act) => Promise<void>;
  /** `false` when the node-unit may not be removed. */
  remove: (node: NodeView, act?: Act) => Promise<boolean>;
}

interface By {
  scope: Scope;
  act: Act | undefined;
}

export function nodeRoutes({ page, find, setDraining, remove }: NodesSource): Served[] {
  const read = async (scope: Scope, id: string): Promise<NodeView> =>
    pickNode(await find(scope, id), id);
  const drain = async ({ scope, act }: By, id: string, draining: boolean) => {
    const node = await read(scope, id);
    requireNodeAdmin(scope, node);
    await setDraining(node, draining, act);
    return shownNode(scope, { ...(await read(scope, node.node_id)), draining });
  };
  return [
    serve(ROUTES.listNodes, async ({ scope, query }): Promise<List<NodeView>> => {
      const { online, node_unit: nodeUnit, limit, cursor: after = "" } = query;
      const nodes = await page({ scope, online, nodeUnit, after, limit: limit + 1 });
      const items = nodes.slice(0, limit).map((node) => shownNode(scope, node));
      return { items, next_cursor: nodes.length > limit ? items.at(-1)!.node_id : null };
    }),
    serve(ROUTES.readNode, async ({ scope, params }) =>
      shownNode(scope, await read(scope, params.id)),
    ),
    serve(ROUTES.drainNode, ({ params, ...by }) => drain(by, params.id, true)),
    serve(ROUTES.resumeNode, ({ params, ...by }) => drain(by, params.id, false)),
    serve(ROUTES.removeNode, async ({ scope, params, reply, act }) => {
      const node = await read(scope, params.id);
      requireNodeAdmin(scope, node);
      if (!(await remove(node, act))) throw notRemoved(await read(scope, params.id));
      reply.code(204);
      return undefined;
    }),
  ];
}

/** Of the tenants that a node serves, a caller within one sees that one. */
export function shownNode({ tenants }: Scope, node: NodeView): NodeView {
  const shown = node.tenants?.filter((tenant) => tenant === ANY_TENANT || serves(tenants, tenant));
  return shown ? { ...node, tenants: shown } : node;
}

/** A node that serves several tenants is the operators'. */
function requireNodeAdmin(scope: Scope, { tenants = [DEFAULT_TENANT] }: NodeView): void {
  const isOwn = tenants.every((tenant) => tenant !== ANY_TENANT && serves(scope.tenants, tenant));
  if (!isOwn) requireOperator(scope);
}

function notRemoved({ name, online, draining }: NodeView): TenureError {
  const why = online
    ? "is online; stop it first"
    : draining
      ? "is draining; end that with resume first"
      : "still owns a deployment, or one is on its way to it";
  return new TenureError("CONFLICT", { reason: `node ${name} ${why}` });
}

/** By address, or by name where only one node has it. */
function pickNode(nodes: NodeView[], id: string): NodeView {
  const found = nodes.find((node) => node.node_id === id);
  if (found) return found;
  const named = nodes.filter((node) => node.name === id);
  const online = named.filter((node) => node.online);
  const [only, ...others] = online.length > 0 ? online : named;
  if (!only) throw new TenureError("NOT_FOUND", { what: "node", id });
  if (others.length > 0) {
    throw new TenureError("CONFLICT", {
      reason: `${others.length + 1} nodes are named ${id}; say which by its address`,
    });
  }
  return only;
}

export interface MembershipSource {
  current: () => { view: ViewState; settlesInMs: number; members: Member[] };
  brake: () => { active: boolean; since: Date | null; lost: number; members: number };
  /** `false` when it was not on. */
  releaseBrake: (act?: Act) => Promise<boolean>;
  refresh: () => Promise<void>;
  wallMs: () => number;
}

export function membershipRoutes(source: MembershipSource): Served[] {
  const render = ({ tenants, operates }: Scope) => {
    const { view, settlesInMs, members } = source.current();
    const settles_at =
      view === "ready" ? null : new Date(source.wallMs() + settlesInMs).toISOString();
    const brake = renderBrake(source.brake());
    // How many node-units there are is the operators' business.
    const shown = operates ? brake : { ...brake, lost: 0, members: 0 };
    return { view, settles_at, members: membersFor(members, tenants), brake: shown };
  };
  return [
    serve(ROUTES.readMembership, async ({ scope }) => render(scope)),
    serve(ROUTES.releaseBrake, async ({ scope, act }) => {
      requireOperator(scope);
      await source.releaseBrake(act);
      await source.refresh();
      return render(scope);
    }),
  ];
}

const renderBrake = ({
  active,
  since,
  lost,
  members,
}: ReturnType<MembershipSource["brake"]>): Brake => ({
  active,
  since: active ? (since?.toISOString() ?? null) : null,
  lost: active ? lost : 0,
  members: active ? members : 0,
});
