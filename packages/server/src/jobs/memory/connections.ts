import type { AckList, NodeAck, ServerToNode, ServerToSession } from "@tenure/protocol";
import type { ResultLink } from "./result-queue.ts";
import type { UpdateRequests } from "./update-requests.ts";

/** A node connected to this instance. */
export interface NodeConnection {
  readonly nodeId: string;
  readonly epoch: number;
  /** Tenants whose jobs it runs. */
  readonly snapshot?: { readonly tenants?: readonly string[] | undefined };
  readonly link: {
    send(message: ServerToNode): void;
    sendText(message: string): void;
    /** With `deferred_start`: the boot id of the process that starts short jobs in silence. */
    readonly takesAs?: string | undefined;
    /** With `ack_lists`. Absent: each result is acknowledged in a frame of its own. */
    readonly acks?: AckList<NodeAck> | undefined;
  };
}

/** A session connected to this instance. */
export interface SessionConnection {
  readonly sessionId: string;
  readonly tenant: string;
  /** Name of its token. */
  readonly token?: string | undefined;
  readonly epoch: number;
  readonly link: ResultLink & {
    send(message: ServerToSession): void;
    /** With `updates_on_request`. Absent: the session gets the states of all its jobs. */
    readonly updates?: UpdateRequests | undefined;
  };
}

/** The nodes and sessions connected to this instance. A newer connection replaces the older one of the same id. */
export interface Connections {
  node(nodeId: string): NodeConnection | undefined;
  session(sessionId: string): SessionConnection | undefined;
  nodes(): Iterable<NodeConnection>;
  addNode(node: NodeConnection): void;
  addSession(session: SessionConnection): void;
  /** `false`: a newer connection has replaced it. */
  removeNode(node: NodeConnection): boolean;
  removeSession(session: SessionConnection): boolean;
}

export function createConnections(): Connections {
  const nodes = new Map<string, NodeConnection>();
  const sessions = new Map<string, SessionConnection>();
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
