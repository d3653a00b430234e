import { hostname, networkInterfaces } from "node:os";

export interface HostRules {
  /** What the server is bound to, e.g. `127.0.0.1` or `0.0.0.0`. */
  host: string;
  advertiseUrl: string;
  allowedOrigins: readonly string[];
}

export interface HostGuard {
  hostAllowed(host: string | undefined): boolean;
  originAllowed(origin: string | undefined, host: string): boolean;
}

/**
 * Checks `Host` and `Origin`, also where no token is needed: a web page can make a browser send requests to a
 * loopback server, by a DNS name that resolves to it (`Host` is then a foreign one) or across origins.
 */
export function createHostGuard(rules: HostRules): HostGuard {
  const origins = new Set(
    rules.allowedOrigins.map((origin) => origin.toLowerCase().replace(/\/$/, "")),
  );
  const names = new Set(["localhost", "127.0.0.1", "::1", rules.host.toLowerCase()]);
  for (const url of [rules.advertiseUrl, ...rules.allowedOrigins]) if (url) names.add(hostOf(url));
  if (!isLoopbackName(rules.host)) for (const name of ownNames()) names.add(name);

  return {
    hostAllowed: (host) => names.has(nameIn(host ?? "")),
    originAllowed: (origin, host) =>
      origin === undefined ||
      origins.has(origin.toLowerCase()) ||
      origin.toLowerCase() === `http://${host.toLowerCase()}` ||
      origin.toLowerCase() === `https://${host.toLowerCase()}`,
  };
}

/** A proxy and this server may read different ones of two `Host` headers, so such a request is rejected. */
export function hasTwoHosts({ rawHeaders }: { rawHeaders: readonly string[] }): boolean {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
  }
  return hosts > 1;
}

/**
 * The name in a `Host` header, without port and brackets. Not parsed as a URL: a URL parser would turn
 * `evil.example@127.0.0.1` and `2130706433` into 127.0.0.1.
 */
function nameIn(host: string): string {
  const [, bracketed, plain] = /^(?:\[([\da-f:.]+)\]|([\w.-]+))(?::\d+)?$/i.exec(host) ?? [];
  return (bracketed ?? plain ?? NO_HOST).toLowerCase();
}

function hostOf(url: string): string {
  try {
    return new URL(url).hostname.replace(/^\[|\]$/g, "").toLowerCase();
  } catch {
    return NO_HOST;
  }
}

/** Stands for a text that names no host. No header can contain it, so nothing matches it. */
const NO_HOST = "\0";

const isLoopbackName = (host: string): boolean =>
  ["localhost", "127.0.0.1", "::1"].includes(host.toLowerCase());

function ownNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return [hostname().toLowerCase(), ...addresses.map(({ address }) => address.toLowerCase())];
}
