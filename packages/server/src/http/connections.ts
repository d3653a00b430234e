import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { addressGroup } from "../audit/address-group.ts";
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
  /** Counts a connection until it closes. At a limit the oldest one without a token is closed, or else this one. */
  opened(socket: Socket): void;
  /** The connection of a client is encrypted from now on: requests arrive on this socket, over one that was counted. */
  secured(socket: Socket): void;
  /** A valid token arrived over this connection: it is no longer closed to make room. */
  proved(socket: Socket): void;
  /** A request without a token begins: the connection is closed when it is idle for 30 s. */
  askedWithoutToken(socket: Socket): void;
  /**
   * Counts a request through a trusted proxy for the address that the proxy forwards, until `ended` is called. Undefined
   * when that address is at its limit. Does not count requests over other connections.
   */
  forwarded(request: IncomingMessage): { ended(): void } | undefined;
}

/** How long a connection without a token may be idle. */
const STRANGER_IDLE_MS = 30_000;

/** The connections of one address, or all of them. */
class Group {
  readonly refusal: ConnectionRefusal;
  readonly max: number;
  open = 0;
  /** Connections without a token, oldest first. */
  readonly unproved = new Set<Socket>();

  constructor(refusal: ConnectionRefusal, max: number) {
    this.refusal = refusal;
    this.max = max;
  }
}

/**
 * Limits the connections in total and per address, so that clients without a token cannot use up the descriptors and the
 * memory that nodes need. At a limit the oldest connection without a token is closed: a healthy client sends its token
 * within one round trip and so connects during a flood. Loopback addresses count like any other.
 */
export function createConnections(
  { connectionsMax, perAddressMax }: ConnectionLimits,
  proxies: TrustedProxies,
  onRefused: (refusal: ConnectionRefusal, address: string) => void,
): Connections {
  const all = new Group("connections", connectionsMax);
  const byAddress = new Map<string, Group>();
  const groupsOf = new Map<Socket, Group[]>();
  const byEnds = new Map<string, Socket>();
  /** The counted socket under one that decrypts. */
  const under = new WeakMap<Socket, Socket>();
  const counted = (socket: Socket): Socket => under.get(socket) ?? socket;

  function groupFor(address: string): Group {
    const key = addressGroup(address);
    const group = byAddress.get(key) ?? new Group("connections_per_address", perAddressMax);
    byAddress.set(key, group);
    return group;
  }

  function forget(address: string, group: Group): void {
    if (group.open === 0) byAddress.delete(addressGroup(address));
  }

  function count(socket: Socket, address: string, groups: Group[]): void {
    const isProxy = proxies.includes(address);
    groupsOf.set(socket, groups);
    const ends = endsOf(socket);
    byEnds.set(ends, socket);
    for (const group of groups) {
      group.open += 1;
      if (!isProxy) group.unproved.add(socket);
    }
    socket.once("close", () => {
      if (byEnds.get(ends) === socket) byEnds.delete(ends);
      left(socket, address);
    });
  }

  function left(socket: Socket, address: string): void {
    for (const group of groupsOf.get(socket) ?? []) {
      group.open -= 1;
      group.unproved.delete(socket);
      if (group !== all) forget(address, group);
    }
    groupsOf.delete(socket);
  }

  /** Closes the oldest connection without a token when the group is full. False when there is none to close. */
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
      // The address first: a connection closed there leaves room in the total as well.
      const full = groups.toReversed().find((group) => !makeRoom(group));
      if (!full) return count(socket, address, groups);
      for (const group of groups) if (group !== all) forget(address, group);
      onRefused(full.refusal, address);
      socket.destroy();
    },
    secured(socket) {
      const transport = byEnds.get(endsOf(socket));
      if (transport) under.set(socket, transport);
    },
    proved(socket) {
      const transport = counted(socket);
      for (const group of groupsOf.get(transport) ?? []) {
        if (group.unproved.delete(transport) && group === all) socket.setTimeout(0);
      }
    },
    askedWithoutToken(socket) {
      if (all.unproved.has(counted(socket))) socket.setTimeout(STRANGER_IDLE_MS);
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

/** Both ends of a connection: a TLS server gives out no other relation between a socket and the one under it. */
const endsOf = ({ localAddress, localPort, remoteAddress, remotePort }: Socket): string =>
  `${localAddress} ${localPort} ${remoteAddress} ${remotePort}`;

const NOT_COUNTED = { ended() {} };

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
      "connection limit reached; closed connections without a valid token",
    );
    refused = 0;
  };
}
