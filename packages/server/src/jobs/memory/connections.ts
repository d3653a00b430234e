import type { ServerToNode, ServerToSession } from "@tenure/protocol";
import type { ResultLink } from "./result-queue.ts";

/** What jobs need of a connected node: whose it is, and a way to speak to it. */
export interface NodeEnd {
  readonly nodeId: string;
  readonly epoch: number;
  /** Whose jobs it runs. */
  readonly snapshot?: { readonly tenants?: readonly string[] | undefined };
  readonly link: { send(message: ServerToNode): void; sendText(message: string): void };
}

/** The same of a connected session. */
export interface SessionEnd {
  readonly sessionId: string;
  readonly tenant: string;
  /** The name of the token it connected with. */
  readonly token?: string | undefined;
  readonly epoch: number;
  readonly link: ResultLink & { send(message: ServerToSession): void };
}

/** Who is connected here. A newer connection of the same name takes the place of the older. */
export interface Links {
  node(nodeId: string): NodeEnd | undefined;
  session(sessionId: string): SessionEnd | undefined;
  nodes(): Iterable<NodeEnd>;
  addNode(node: NodeEnd): void;
  addSession(session: SessionEnd): void;
  /** `false`: a newer connection has its place. */
  removeNode(node: NodeEnd): boolean;
  removeSession(session: SessionEnd): boolean;
}

export function createLinks(): Links {
  const nodes = new Map<string, NodeEnd>();
  const sessions = new Map<string, SessionEnd>();
  return {
    node: (nodeId) => nodes.get(nodeId),
    session: (sessionId) => sessions.get(sessionId),
    nodes: () => nodes.values(),
    addNode: (node) => void nodes.set(node.nodeId, node),
    addSession: (session) => void sessions.set(session.sessionId, session),
    removeNode: (node) => nodes.get(node.nodeId) === node && nodes.delete(node.nodeId),
    removeSession: (session) =>
      sessions.get(session.sessionId) === session && sessions.delete(session.sessionId),
  };
}
