import { fromErrorBody, ROUTES, StreamItem, TenureError } from "@tenure/protocol";
import { openFetch } from "#tls";
import type { Fetch, TlsFiles } from "../connection/tls.ts";
import { createServers, noAnswer } from "./servers.ts";
import { readServerEvents, type ServerEvent } from "./sse.ts";

export interface FollowOptions {
  /** URL of an instance, or several, as an array or separated by commas: the first that answers is followed. */
  url: string | readonly string[];
  token?: string | undefined;
  signal: AbortSignal;
  /** For `https` with a private CA or with client certificates. */
  tls?: TlsFiles | undefined;
  /** Called when a server has accepted, before the first event. */
  onOpen?: () => void;
}

/**
 * Yields every change that the server reports, until the signal aborts or the connection breaks. Changes from before the
 * connection are not in it: after a reconnect, read the lists first.
 */
export async function* followStream(options: FollowOptions): AsyncGenerator<StreamItem> {
  for await (const { data } of serverEvents(ROUTES.openStream.path, options)) {
    const parsed = StreamItem.safeParse(JSON.parse(data));
    if (parsed.success) yield parsed.data;
  }
}

/** Servers write at least every 15 s; after twice that without a byte the connection counts as lost. */
const SILENCE_LIMIT_MS = 30_000;

/** Yields the server-sent events of a path until the server ends them. Throws when the connection breaks or is silent. */
export async function* serverEvents(
  path: string,
  { url, token, signal, tls, onOpen }: FollowOptions,
): AsyncGenerator<ServerEvent> {
  const fetchWith = openFetch(tls);
  const silence = new AbortController();
  const restartTimer = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(silent()), SILENCE_LIMIT_MS);
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  restartTimer();
  try {
    const init = {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.any([signal, silence.signal]),
    };
    const body = await createServers(url).use(
      (server) => open(fetchWith, new URL(path, server.url), init),
      () => !signal.aborted,
    );
    onOpen?.();
    for await (const events of readServerEvents(body)) {
      restartTimer();
      yield* events;
    }
  } finally {
    clearTimeout(timer);
  }
}

async function open(
  fetchWith: Fetch,
  url: URL,
  init: RequestInit,
): Promise<ReadableStream<Uint8Array>> {
  const response = await fetchWith(url, init).catch((error: unknown) => {
    throw noAnswer(url, error);
  });
  if (!response.ok)
    throw fromErrorBody(await response.json().catch(() => undefined), response.status);
  if (!response.body) throw new TenureError("INTERNAL", { reason: "the server sent no stream" });
  return response.body;
}

const silent = (): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: "the stream",
    reason: `nothing arrived for ${SILENCE_LIMIT_MS} ms`,
  });
