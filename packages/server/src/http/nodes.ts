import {
  type Brake,
  type List,
  type Member,
  type NodeView,
  ROUTES,
  TenureError,
  type ViewState,
} from "@tenure/protocol";
import type { Act } from "../audit/actor.ts";
import { type Served, serve } from "./route.ts";

export interface NodesSource {
  page: (filter: {
    online?: boolean | undefined;
    nodeUnit?: boolean | undefined;
    after: string;
    limit: number;
  }) => Promise<NodeView[]>;
  /** Those with this address or name. */
  find: (id: string) => Promise<NodeView[]>;
  setDraining: (node: NodeView, draining: boolean, act?: Act) => Promise<void>;
  /** `false` when the node-unit may not be removed. */
  remove: (address: string, act?: Act) => Promise<boolean>;
}

export function nodeRoutes({ page, find, setDraining, remove }: NodesSource): Served[] {
  const read = async (id: string): Promise<NodeView> => pickNode(await find(id), id);
  const drain = (draining: boolean) => async (id: string, act: Act | undefined) => {
    const node = await read(id);
    await setDraining(node, draining, act);
    return { ...(await read(node.node_id)), draining };
  };
  return [
    serve(ROUTES.listNodes, async ({ query }): Promise<List<NodeView>> => {
      const { online, node_unit: nodeUnit, limit, cursor: after = "" } = query;
      const nodes = await page({ online, nodeUnit, after, limit: limit + 1 });
      const items = nodes.slice(0, limit);
      return { items, next_cursor: nodes.length > limit ? items.at(-1)!.node_id : null };
    }),
    serve(ROUTES.readNode, async ({ params }) => read(params.id)),
    serve(ROUTES.drainNode, async ({ params, act }) => drain(true)(params.id, act)),
    serve(ROUTES.resumeNode, async ({ params, act }) => drain(false)(params.id, act)),
    serve(ROUTES.removeNode, async ({ params, reply, act }) => {
      const node = await read(params.id);
      if (!(await remove(node.node_id, act))) throw notRemoved(await read(params.id));
      reply.code(204);
      return undefined;
    }),
  ];
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
  const render = () => {
    const { view, settlesInMs, members } = source.current();
    const settles_at =
      view === "ready" ? null : new Date(source.wallMs() + settlesInMs).toISOString();
    return { view, settles_at, members, brake: renderBrake(source.brake()) };
  };
  return [
    serve(ROUTES.readMembership, async () => render()),
    serve(ROUTES.releaseBrake, async ({ act }) => {
      await source.releaseBrake(act);
      await source.refresh();
      return render();
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
