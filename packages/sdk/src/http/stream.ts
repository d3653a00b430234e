import { fromErrorBody, ROUTES, StreamItem, TenureError } from "@tenure/protocol";
import { createServers, noAnswer } from "./servers.ts";

export interface FollowOptions {
  /** One instance, or several, also in one text with commas between them: the first that answers is followed. */
  url: string | readonly string[];
  token?: string | undefined;
  signal: AbortSignal;
  /** Called when a server has accepted, before the first event. */
  onOpen?: () => void;
}

/**
 * Every change the server tells of, until the signal aborts or the connection breaks. What happened while
 * nobody followed is not in it: whoever starts again reads the lists first.
 */
export async function* followStream(options: FollowOptions): AsyncGenerator<StreamItem> {
  for await (const { data } of serverEvents(ROUTES.openStream.path, options)) {
    const parsed = StreamItem.safeParse(JSON.parse(data));
    if (parsed.success) yield parsed.data;
  }
}

export interface ServerEvent {
  event: string;
  data: string;
}

/** Servers write at least every 15 s; after twice that without a byte the connection counts as lost. */
const SILENCE_LIMIT_MS = 30_000;

/** The server-sent events of a path, until the server ends them; throws when the connection breaks or falls silent. */
export async function* serverEvents(
  path: string,
  { url, token, signal, onOpen }: FollowOptions,
): AsyncGenerator<ServerEvent> {
  const silence = new AbortController();
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(silent()), SILENCE_LIMIT_MS);
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  heard();
  try {
    const init = {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.any([signal, silence.signal]),
    };
    const body = await createServers(url).use(
      (server) => open(new URL(path, server.url), init),
      () => !signal.aborted,
    );
    onOpen?.();
    let unread = "";
    const decoder = new TextDecoder();
    for await (const chunk of body) {
      heard();
      const blocks = (unread + decoder.decode(chunk, { stream: true })).split("\n\n");
      unread = blocks.pop() ?? "";
      for (const block of blocks) yield* eventsOf(block);
    }
  } finally {
    clearTimeout(timer);
  }
}

async function open(url: URL, init: RequestInit): Promise<ReadableStream<Uint8Array>> {
  const response = await fetch(url, init).catch((error: unknown) => {
    throw noAnswer(url, error);
  });
  if (!response.ok)
    throw fromErrorBody(await response.json().catch(() => undefined), response.status);
  if (!response.body) throw new TenureError("INTERNAL", { reason: "the server sent no stream" });
  return response.body;
}

/** One block is one event; comments and the retry hint carry no data. */
function eventsOf(block: string): ServerEvent[] {
  const valuesOf = (field: string) =>
    block.split("\n").flatMap((line) => (line.startsWith(field) ? [line.slice(field.length)] : []));
  const data = valuesOf("data: ");
  return data.length === 0 ? [] : [{ event: valuesOf("event: ")[0] ?? "", data: data.join("\n") }];
}

const silent = (): TenureError =>
  new TenureError("DEPENDENCY_DOWN", {
    dependency: "the stream",
    reason: `nothing arrived for ${SILENCE_LIMIT_MS} ms`,
  });
