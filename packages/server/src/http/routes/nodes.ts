import {
  ANY_TENANT,
  type Brake,
  DEFAULT_TENANT,
  type List,
  type NodeView,
  ROUTES,
  serves,
  TenureError,
} from "@tenure/protocol";
import type { Act } from "../../audit/actor.ts";
import type { Scope } from "../../kernel/scope.ts";
import type { Fleet } from "../../membership/fleet.ts";
import type { MembersService } from "../../membership/members.ts";
import type { Membership } from "../../membership/membership.ts";
import { membersFor } from "../../membership/visible-members.ts";
import { readPage } from "../page.ts";
import { type Served, serve } from "../route.ts";
import { requireOperator } from "../scope.ts";

export interface NodesSource extends Pick<Fleet, "page" | "find"> {
  setDraining: Membership["drain"];
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
      const { rows, next_cursor } = await readPage(
        limit,
        (limit) => page({ scope, online, nodeUnit, after, limit }),
        (last) => last.node_id,
      );
      return { items: rows.map((node) => shownNode(scope, node)), next_cursor };
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

/** A node as the caller may see it: of the tenants it serves, only those in the caller's scope. */
export function shownNode({ tenants }: Scope, node: NodeView): NodeView {
  const shown = node.tenants?.filter((tenant) => tenant === ANY_TENANT || serves(tenants, tenant));
  return shown ? { ...node, tenants: shown } : node;
}

/** Only operators may change a node that serves several tenants. */
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
      reason: `${others.length + 1} nodes are named ${id}; use the address of one`,
    });
  }
  return only;
}

export interface MembershipSource
  extends Pick<MembersService, "current" | "brake" | "releaseBrake" | "refresh"> {
  wallMs: () => number;
}

export function membershipRoutes(source: MembershipSource): Served[] {
  const render = ({ tenants, operates }: Scope) => {
    const { view, settlesInMs, members } = source.current();
    const settles_at =
      view === "ready" ? null : new Date(source.wallMs() + settlesInMs).toISOString();
    const brake = renderBrake(source.brake(tenants));
    // Only operators see the number of node-units.
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
