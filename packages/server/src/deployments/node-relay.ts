import {
  type Actor,
  fromErrorBody,
  type LogPage,
  type LogSelection,
  ROUTES,
  serves,
  TenureError,
} from "@tenure/protocol";
import type { LogFollower, NodeLink } from "../membership/node-connection.ts";
import { callPeer, type PeerCall, PeerUnavailable, readBody } from "../peers/peer-client.ts";
import type { PeerFetch } from "../peers/peer-fetch.ts";

const PEER_LIMIT_MS = 15_000;

export interface RelayOptions {
  instanceId: string;
  peerToken: string;
  peerFetch?: PeerFetch | undefined;
  /** Nodes connected to this instance. */
  connected: () => readonly {
    nodeId: string;
    link: NodeLink;
    snapshot: { tenants?: readonly string[] | undefined };
  }[];
  /** Node-units that are present, and the instance each is connected to. */
  present: () => readonly {
    address: string;
    instance_id: string;
    tenants?: readonly string[] | undefined;
  }[];
  instances: () => Promise<{ instance_id: string; url: string }[]>;
}

export interface LogRequest extends LogSelection {
  /** Of the deployment. A node that does not serve it is not called: a pin may name any node. */
  tenant: string;
  address: string;
  forwarded: boolean;
}

export type FollowedLog =
  | { from: "node"; start: (follower: LogFollower) => Promise<() => void> }
  | { from: "peer"; body: ReadableStream<Uint8Array> };

export interface NodeRelay {
  readLog(request: LogRequest): Promise<LogPage>;
  /** Until the reader disconnects (`signal`), or must not read the log any more (`left`). */
  followLog(
    request: LogRequest,
    until: { signal: AbortSignal; left: AbortSignal },
  ): Promise<FollowedLog>;
  /** Restarts the deployment on these nodes; returns how many did. */
  restart(
    id: string,
    addresses: readonly string[],
    by: { tenant: string; forwarded: boolean; actor?: Actor | undefined },
  ): Promise<number>;
  /** Ends the logs that are followed through other instances: an open response would delay the stop. */
  close(): void;
}

/** Calls a node at any instance: over its socket here, or with one hop through the instance it is connected to. */
export function createNodeRelay(options: RelayOptions): NodeRelay {
  const closing = new AbortController();
  const linkOf = (tenant: string, address: string): NodeLink | undefined =>
    options
      .connected()
      .find(({ nodeId, snapshot }) => nodeId === address && serves(snapshot.tenants, tenant))?.link;

  async function peerOf(tenant: string, address: string, forwarded: boolean): Promise<string> {
    const place = options
      .present()
      .find((node) => node.address === address && serves(node.tenants, tenant));
    if (forwarded || !place || place.instance_id === options.instanceId) throw unreachable(address);
    const instances = await options.instances();
    const peer = instances.find(({ instance_id }) => instance_id === place.instance_id);
    if (!peer) throw unreachable(address);
    return peer.url;
  }

  async function request(call: PeerCall): Promise<Response> {
    const response = await callPeer(options, call).catch((error) => peerDown(call.url, error));
    if (response.ok) return response;
    throw fromErrorBody(await response.json().catch(() => undefined), response.status);
  }

  return {
    async readLog({ tenant, address, forwarded, ...selection }) {
      const link = linkOf(tenant, address);
      const { deployment_id, file = 0 } = selection;
      if (link) {
        const { lines, next, files = [file] } = await link.call("log.read", selection);
        return { deployment_id, address, file, files, lines, next };
      }
      const signal = AbortSignal.timeout(PEER_LIMIT_MS);
      const url = await peerOf(tenant, address, forwarded);
      const route = ROUTES.readLogs;
      const params = { id: deployment_id };
      const query = logQuery(selection, address);
      const response = await request({ url, route, params, query, signal });
      return route.reply.parse(await readBody(response).catch((error) => peerDown(url, error)));
    },
    async followLog({ tenant, address, forwarded, ...selection }, { signal, left }) {
      const link = linkOf(tenant, address);
      if (link)
        return { from: "node", start: (follower) => followNode(link, selection, follower, left) };
      const response = await request({
        url: await peerOf(tenant, address, forwarded),
        route: ROUTES.readLogs,
        params: { id: selection.deployment_id },
        query: { ...logQuery(selection, address), follow: true },
        signal: AbortSignal.any([signal, left, closing.signal]),
      });
      if (!response.body) throw unreachable(address);
      return { from: "peer", body: response.body };
    },
    async restart(id, addresses, { tenant, forwarded, actor }) {
      const links = addresses.flatMap((address) => linkOf(tenant, address) ?? []);
      const elsewhere = forwarded ? [] : addresses.filter((address) => !linkOf(tenant, address));
      const urls = new Set<string>();
      for (const address of elsewhere) urls.add(await peerOf(tenant, address, forwarded));
      const signal = AbortSignal.timeout(PEER_LIMIT_MS);
      await Promise.all([
        ...links.map((link) => link.call("deployment.restart", { deployment_id: id })),
        ...[...urls].map((url) =>
          request({ url, route: ROUTES.restartDeployment, params: { id }, actor, signal }),
        ),
      ]);
      return links.length + elsewhere.length;
    },
    close: () => closing.abort(),
  };
}

async function followNode(
  link: NodeLink,
  selection: LogSelection,
  follower: LogFollower,
  left: AbortSignal,
): Promise<() => void> {
  const stop = await link.follow(selection, follower);
  const end = () => {
    stop();
    follower.ended();
  };
  if (left.aborted) end();
  else left.addEventListener("abort", end, { once: true });
  return stop;
}

const logQuery = ({ lines, file, from }: LogSelection, node: string) => ({
  lines,
  file,
  from,
  node,
});

function peerDown(url: string, error: unknown): never {
  if (!(error instanceof PeerUnavailable)) throw error;
  const details = { dependency: `the instance at ${url}`, reason: error.message };
  throw new TenureError("DEPENDENCY_DOWN", details, { cause: error });
}

const unreachable = (address: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: `node ${address}`,
    reason: "it is not connected",
  });
