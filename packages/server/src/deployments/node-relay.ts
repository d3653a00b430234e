import {
  type Actor,
  fromErrorBody,
  type LogPage,
  type LogSelection,
  ROUTES,
  type Route,
  TenureError,
} from "@tenure/protocol";
import { actorHeader } from "../audit/actor.ts";
import { reasonOfConnectionError } from "../kernel/connection-error.ts";
import type { LogFollower, NodeLink } from "../membership/nodes.ts";
import { PEER_TOKEN_REFUSED } from "../membership/peer-token.ts";

/** Marks a request that has had its one hop: whoever gets it answers from its own nodes, or not at all. */
export const FORWARDED_HEADER = "x-tenure-forwarded";
const PEER_LIMIT_MS = 15_000;

export interface RelayOptions {
  instanceId: string;
  peerToken: string;
  /** Nodes connected to this instance. */
  connected: () => readonly { nodeId: string; link: NodeLink }[];
  /** Node-units that are present, and the instance each is connected to. */
  present: () => readonly { address: string; instance_id: string }[];
  instances: () => Promise<{ instance_id: string; url: string }[]>;
}

export interface LogRequest extends LogSelection {
  address: string;
  forwarded: boolean;
}

export type FollowedLog =
  | { from: "node"; start: (follower: LogFollower) => Promise<() => void> }
  | { from: "peer"; body: ReadableStream<Uint8Array> };

export interface NodeRelay {
  readLog(request: LogRequest): Promise<LogPage>;
  followLog(request: LogRequest, signal: AbortSignal): Promise<FollowedLog>;
  /** Restarts it on those nodes; answers how many did. */
  restart(
    id: string,
    addresses: readonly string[],
    by: { forwarded: boolean; actor?: Actor | undefined },
  ): Promise<number>;
  /** Ends what is followed through other instances: an open answer would keep this one from stopping. */
  close(): void;
}

/** The way to a node wherever it is connected: over its socket here, or one hop through its instance. */
export function createNodeRelay(options: RelayOptions): NodeRelay {
  const closing = new AbortController();
  const linkOf = (address: string): NodeLink | undefined =>
    options.connected().find(({ nodeId }) => nodeId === address)?.link;

  async function peerOf(address: string, forwarded: boolean): Promise<string> {
    const place = options.present().find((node) => node.address === address);
    if (forwarded || !place || place.instance_id === options.instanceId) throw unreachable(address);
    const instances = await options.instances();
    const peer = instances.find(({ instance_id }) => instance_id === place.instance_id);
    if (!peer) throw unreachable(address);
    return peer.url;
  }

  async function ask(
    route: Route,
    url: string,
    {
      id,
      query = {},
      actor,
      signal,
    }: {
      id: string;
      query?: Record<string, unknown>;
      actor?: Actor | undefined;
      signal: AbortSignal;
    },
  ): Promise<Response> {
    const target = new URL(route.path.replace(":id", encodeURIComponent(id)), url);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) target.searchParams.set(name, String(value));
    const response = await fetch(target, {
      method: route.method,
      signal,
      headers: {
        [FORWARDED_HEADER]: options.instanceId,
        ...actorHeader(actor),
        ...(route.method !== "GET" && { "content-type": "application/json" }),
        ...(options.peerToken && { authorization: `Bearer ${options.peerToken}` }),
      },
    }).catch((error: unknown) => peerDown(url, error));
    if (response.ok) return response;
    const failure = fromErrorBody(await response.json().catch(() => undefined), response.status);
    // The caller of this instance is allowed to call; it was this instance that its peer did not let in.
    if (response.status === 401 || response.status === 403) {
      const reason = response.status === 401 ? PEER_TOKEN_REFUSED : failure.message;
      throw new TenureError("DEPENDENCY_DOWN", { dependency: `the instance at ${url}`, reason });
    }
    throw failure;
  }

  return {
    async readLog({ address, forwarded, ...selection }) {
      const link = linkOf(address);
      const { deployment_id, file = 0 } = selection;
      if (link) {
        const { lines, next, files = [file] } = await link.call("log.read", selection);
        return { deployment_id, address, file, files, lines, next };
      }
      const signal = AbortSignal.timeout(PEER_LIMIT_MS);
      const url = await peerOf(address, forwarded);
      const query = logQuery(selection, address);
      const response = await ask(ROUTES.readLogs, url, { id: deployment_id, query, signal });
      const page = await response.json().catch((error: unknown) => peerDown(url, error));
      return ROUTES.readLogs.reply.parse(page);
    },
    async followLog({ address, forwarded, ...selection }, signal) {
      const link = linkOf(address);
      if (link) return { from: "node", start: (follower) => link.follow(selection, follower) };
      const response = await ask(ROUTES.readLogs, await peerOf(address, forwarded), {
        id: selection.deployment_id,
        query: { ...logQuery(selection, address), follow: true },
        signal: AbortSignal.any([signal, closing.signal]),
      });
      if (!response.body) throw unreachable(address);
      return { from: "peer", body: response.body };
    },
    async restart(id, addresses, { forwarded, actor }) {
      const links = addresses.flatMap((address) => linkOf(address) ?? []);
      const elsewhere = forwarded ? [] : addresses.filter((address) => !linkOf(address));
      const urls = new Set<string>();
      for (const address of elsewhere) urls.add(await peerOf(address, forwarded));
      const signal = AbortSignal.timeout(PEER_LIMIT_MS);
      await Promise.all([
        ...links.map((link) => link.call("deployment.restart", { deployment_id: id })),
        ...[...urls].map((url) => ask(ROUTES.restartDeployment, url, { id, actor, signal })),
      ]);
      return links.length + elsewhere.length;
    },
    close: () => closing.abort(),
  };
}

const logQuery = ({ lines, file, from }: LogSelection, node: string) => ({
  lines,
  file,
  from,
  node,
});

/** Also in the middle of an answer: its connection may break at any byte. */
function peerDown(url: string, error: unknown): never {
  const details = {
    dependency: `the instance at ${url}`,
    reason: reasonOfConnectionError(error as Error),
  };
  throw new TenureError("DEPENDENCY_DOWN", details, { cause: error });
}

const unreachable = (address: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: `node ${address}`,
    reason: "it is not connected",
  });
