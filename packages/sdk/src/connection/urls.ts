import { TenureError } from "@tenure/protocol";

export type SocketPath = "/ws/node" | "/ws/session";

/** So many URLs of one `go_away` are used. A fleet has fewer instances; a broken server may send more. */
const PREFERRED_MAX = 16;

export interface UrlRing {
  /** The URL to try now. Each call returns the next one, in a circle. */
  next(): string;
  /** Puts these first, each once: a stopping instance knows the current instances better than the list. */
  prefer(urls: readonly string[]): void;
  /** The connection has moved to this URL. */
  moved(url: string): void;
  /** The whole list, with the current one last. */
  others(): string[];
}

export function createUrlRing(urls: readonly string[], path: SocketPath): UrlRing {
  const known = urls.map((url) => socketUrl(url, path) ?? refuse(url));
  if (known.length === 0)
    throw new TenureError("INVALID_REQUEST", { reason: "no URL to connect to" });
  let preferred: string[] = [];
  let index = 0;
  let current: string | undefined;

  return {
    next() {
      current = preferred.shift() ?? (known[index++ % known.length] as string);
      return current;
    },
    prefer(named) {
      preferred = named
        .slice(0, PREFERRED_MAX)
        .flatMap((url) => socketUrl(url, path) ?? [])
        .filter((url) => url !== current && !isWeaker(url, current));
    },
    moved(url) {
      current = url;
    },
    others() {
      // Begins with the next one, so that clients with the same list do not all go to its first.
      const rotated = known.map((_, step) => known[(index + step) % known.length] as string);
      return [...rotated.filter((url) => url !== current), ...(current ? [current] : [])];
    },
  };
}

/** Accepts one URL, several, or a comma-separated list, as in an environment variable. */
export function urlsOf(url: string | readonly string[]): string[] {
  const named = typeof url === "string" ? url.split(",") : url;
  return named.map((each) => each.trim()).filter((each) => each !== "");
}

/** The socket URL of an instance: `https://host/base` becomes `wss://host/base/ws/node`. */
export function socketUrl(address: string, path: SocketPath): string | undefined {
  if (!/^(https?|wss?):\/\//i.test(address) || !URL.canParse(address)) return undefined;
  const url = new URL(address);
  const base = url.pathname.replace(/\/+$/, "");
  url.protocol = url.protocol.replace("http", "ws");
  url.pathname = base.endsWith(path) ? base : base + path;
  url.hash = "";
  return url.href;
}

/** The URL of `/health/ready`, from a socket URL. */
export const readyUrl = (socketAddress: string, path: SocketPath): string =>
  httpUrl(socketAddress, path, "/health/ready");

/** The URL of the instance for HTTP, from a socket URL. */
export const instanceUrl = (socketAddress: string, path: SocketPath): string =>
  httpUrl(socketAddress, path, "").replace(/\/$/, "");

function httpUrl(socketAddress: string, path: SocketPath, below: string): string {
  const url = new URL(socketAddress);
  url.protocol = url.protocol.replace("ws", "http");
  url.pathname = `${url.pathname.slice(0, -path.length)}${below}`;
  url.search = "";
  url.username = "";
  url.password = "";
  return url.href;
}

/** A message must not move a token from TLS to plain text. */
const isWeaker = (url: string, current: string | undefined): boolean =>
  current?.startsWith("wss:") === true && !url.startsWith("wss:");

// The address is not quoted, because URLs may contain passwords.
function refuse(_address: string): never {
  throw new TenureError("INVALID_REQUEST", {
    reason: "a URL to connect to must start with http://, https://, ws:// or wss://",
  });
}
