import {
  type Brake,
  type List,
  type Member,
  type NodeView,
  ROUTES,
  TenureError,
  type ViewState,
} from "@tenure/protocol";
import { pageOf } from "./page.ts";
import { type Served, serve } from "./route.ts";

export interface NodesSource {
  views: () => NodeView[];
  setDraining: (node: NodeView, draining: boolean) => Promise<void>;
}

export function nodeRoutes({ views, setDraining }: NodesSource): Served[] {
  const read = (id: string): NodeView => findNode(views(), id);
  const drain = (draining: boolean) => async (id: string) => {
    await setDraining(read(id), draining);
    return { ...read(id), draining };
  };
  return [
    serve(ROUTES.listNodes, async ({ query }): Promise<List<NodeView>> => {
      const wanted = views().filter(
        (node) =>
          (query.online === undefined || node.online === query.online) &&
          (query.node_unit === undefined || node.node_unit === query.node_unit),
      );
      return pageOf(wanted, (node) => node.node_id, query);
    }),
    serve(ROUTES.readNode, async ({ params }) => read(params.id)),
    serve(ROUTES.drainNode, async ({ params }) => drain(true)(params.id)),
    serve(ROUTES.resumeNode, async ({ params }) => drain(false)(params.id)),
  ];
}

/** By address, or by name where only one node has it. */
function findNode(nodes: NodeView[], id: string): NodeView {
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
  releaseBrake: () => Promise<boolean>;
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
    serve(ROUTES.releaseBrake, async () => {
      await source.releaseBrake();
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
