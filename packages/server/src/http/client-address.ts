import type { IncomingMessage } from "node:http";
import { BlockList, isIP } from "node:net";
import type { FastifyRequest } from "fastify";

/** The proxies whose `X-Forwarded-For` is trusted. */
export interface TrustedProxies {
  includes(address: string): boolean;
}

/** `cidrs` have been checked by the configuration: `10.0.0.0/8`, `fd00::/8`, or a single address. */
export function createTrustedProxies(cidrs: readonly string[]): TrustedProxies {
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [network = "", bits] = cidr.split("/");
    if (bits === undefined) list.addAddress(network, familyOf(network));
    else list.addSubnet(network, Number(bits), familyOf(network));
  }
  return { includes: (address) => isIP(address) !== 0 && list.check(address, familyOf(address)) };
}

const addresses = new WeakMap<IncomingMessage, string>();

/** Determines the client's address while the socket still has it, remembers it for the request and returns it. */
export function recordClientAddress(request: IncomingMessage, proxies: TrustedProxies): string {
  const address = behind(
    peerAddress(request.socket),
    request.headers["x-forwarded-for"]?.toString(),
    proxies,
  );
  addresses.set(request, address);
  return address;
}

/**
 * The IP address that a request came from. Behind one of `[server] trusted_proxies` that is the address which the
 * proxy forwards; nothing else can change it. `unknown` when the connection was gone before it could be read.
 */
export function clientAddress(request: FastifyRequest | IncomingMessage): string {
  const raw = "raw" in request ? request.raw : request;
  return addresses.get(raw) ?? peerAddress(raw.socket);
}

/** The address at the other end of the connection, which may be a proxy's. An IPv4 address is written as one. */
export function peerAddress({ remoteAddress }: { remoteAddress?: string | undefined }): string {
  return plain(remoteAddress ?? "unknown");
}

/**
 * Each proxy appends the address it was called from. The list is read from its end while the entry was written by a
 * trusted proxy; entries further left were written by the client.
 */
function behind(peer: string, forwarded: string | undefined, proxies: TrustedProxies): string {
  let address = peer;
  const entries = forwarded?.split(",") ?? [];
  while (proxies.includes(address)) {
    const next = addressIn(entries.pop());
    if (next === undefined) break;
    address = next;
  }
  return address;
}

/** Some proxies append the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
function addressIn(entry: string | undefined): string | undefined {
  const text = entry?.trim() ?? "";
  const [, bracketed, dotted] = /^(?:\[([^\]]*)\](?::\d+)?|([\d.]+):\d+)$/.exec(text) ?? [];
  const address = bracketed ?? dotted ?? text;
  return isIP(address) ? plain(address) : undefined;
}

const plain = (address: string): string => address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
const familyOf = (address: string): "ipv4" | "ipv6" => (isIP(address) === 6 ? "ipv6" : "ipv4");
