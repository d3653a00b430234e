import type { IncomingMessage } from "node:http";
import { isIPv6, type Socket } from "node:net";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Telemetry } from "../telemetry.ts";
import { clientAddress, peerAddress, type TrustedProxies } from "./client-address.ts";

export interface ConnectionLimits {
  connectionsMax: number;
  perAddressMax: number;
}

export type ConnectionRefusal = "connections" | "connections_per_address";

export interface Connections {
  /** Counts a connection until it closes. At a limit an older one that has shown no token ends, else this one. */
  opened(socket: Socket): void;
  /** A valid token came over this connection: it is not ended to make room. */
  proved(socket: Socket): void;
  /** A request without a token begins: the connection ends when nothing moves on it for a while. */
  askedWithoutToken(socket: Socket): void;
  /**
   * Counts what came through a trusted proxy to the address it forwards, until `ended` is called. Undefined: that
   * address is at its limit. Of other connections nothing is counted here.
   */
  forwarded(request: IncomingMessage): { ended(): void } | undefined;
}

/** How long a connection without a token may neither send nor take a byte. */
const STRANGER_IDLE_MS = 30_000;

/** The connections of one address, or all of them. */
class Group {
  readonly refusal: ConnectionRefusal;
  readonly max: number;
  open = 0;
  /** Those that have shown no token, the oldest first. */
  readonly unproved = new Set<Socket>();

  constructor(refusal: ConnectionRefusal, max: number) {
    this.refusal = refusal;
    this.max = max;
  }
}

/**
 * Bounds the connections in all and per address, so that clients without a token cannot take the descriptors and the
 * memory that nodes need. At a limit the oldest connection without a token makes room: a healthy client shows its
 * token within one round trip, and so gets in during a flood. Loopback addresses count like any other.
 */
export function createConnections(
  { connectionsMax, perAddressMax }: ConnectionLimits,
  proxies: TrustedProxies,
  onRefused: (refusal: ConnectionRefusal, address: string) => void,
): Connections {
  const all = new Group("connections", connectionsMax);
  const byAddress = new Map<string, Group>();
  const groupsOf = new Map<Socket, Group[]>();

  function groupFor(address: string): Group {
    const key = limitedAs(address);
    const group = byAddress.get(key) ?? new Group("connections_per_address", perAddressMax);
    byAddress.set(key, group);
    return group;
  }

  function forget(address: string, group: Group): void {
    if (group.open === 0) byAddress.delete(limitedAs(address));
  }

  function count(socket: Socket, address: string, groups: Group[]): void {
    const isProxy = proxies.includes(address);
    groupsOf.set(socket, groups);
    for (const group of groups) {
      group.open += 1;
      if (!isProxy) group.unproved.add(socket);
    }
    socket.once("close", () => left(socket, address));
  }

  function left(socket: Socket, address: string): void {
    for (const group of groupsOf.get(socket) ?? []) {
      group.open -= 1;
      group.unproved.delete(socket);
      if (group !== all) forget(address, group);
    }
    groupsOf.delete(socket);
  }

  /** Whether the group has room for one more, after the oldest without a token has made some. */
  function makeRoom(group: Group): boolean {
    if (group.open < group.max) return true;
    const [oldest] = group.unproved;
    if (!oldest) return false;
    const address = peerAddress(oldest);
    onRefused(group.refusal, address);
    left(oldest, address);
    oldest.destroy();
    return true;
  }

  return {
    opened(socket) {
      const address = peerAddress(socket);
      const groups = proxies.includes(address) ? [all] : [all, groupFor(address)];
      // The address first: what it makes room for by itself takes nothing from the others.
      const full = groups.toReversed().find((group) => !makeRoom(group));
      if (!full) return count(socket, address, groups);
      for (const group of groups) if (group !== all) forget(address, group);
      onRefused(full.refusal, address);
      socket.destroy();
    },
    proved(socket) {
      for (const group of groupsOf.get(socket) ?? []) {
        if (group.unproved.delete(socket) && group === all) socket.setTimeout(0);
      }
    },
    askedWithoutToken(socket) {
      if (all.unproved.has(socket)) socket.setTimeout(STRANGER_IDLE_MS);
    },
    forwarded(request) {
      if (!proxies.includes(peerAddress(request.socket))) return NOT_COUNTED;
      const address = clientAddress(request);
      const group = groupFor(address);
      if (group.open >= group.max) {
        onRefused(group.refusal, address);
        return undefined;
      }
      group.open += 1;
      return {
        ended() {
          group.open -= 1;
          forget(address, group);
        },
      };
    },
  };
}

const NOT_COUNTED = { ended() {} };

/** A subscriber of IPv6 has at least a /64 to choose addresses from, so all of it counts as one. */
function limitedAs(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = "", tail = ""] = address.split("%")[0]?.split("::") ?? [];
  const left = head.split(":").filter((group) => group !== "");
  const right = tail.split(":").filter((group) => group !== "");
  const zeros = Array<string>(Math.max(0, 8 - left.length - right.length)).fill("0");
  return [...left, ...zeros, ...right].slice(0, 4).join(":");
}

const REPORTED_EVERY_MS = 60_000;

/** Counts every refusal and logs one a minute: a flood must not fill the log. */
export function createRefusalReport({
  log,
  telemetry,
  clock,
}: {
  log: Log;
  telemetry: Pick<Telemetry, "refusedRequests">;
  clock: Clock;
}): (refusal: ConnectionRefusal, address: string) => void {
  let refused = 0;
  let nextReportMs = 0;
  return (reason, address) => {
    telemetry.refusedRequests.inc({ reason });
    refused += 1;
    if (clock.monotonicMs() < nextReportMs) return;
    nextReportMs = clock.monotonicMs() + REPORTED_EVERY_MS;
    log.warn(
      { event: "connections.refused", reason, address, refused },
      "a limit of connections was reached; connections without a valid token were closed",
    );
    refused = 0;
  };
}
