import { fromErrorBody, ROUTES, StreamItem, TenureError } from "@tenure/protocol";

export interface FollowOptions {
  url: string;
  token?: string | undefined;
  signal: AbortSignal;
}

/**
 * Every change the server tells of, until the signal aborts or the connection breaks. What happened while
 * nobody followed is not in it: whoever starts again reads the lists first.
 */
export async function* followStream({
  url,
  token,
  signal,
}: FollowOptions): AsyncGenerator<StreamItem> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(new URL(ROUTES.openStream.path, url), { headers, signal });
  if (!response.ok)
    throw fromErrorBody(await response.json().catch(() => undefined), response.status);
  if (!response.body) throw new TenureError("INTERNAL", { reason: "the server sent no stream" });
  let unread = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body) {
    const blocks = (unread + decoder.decode(chunk, { stream: true })).split("\n\n");
    unread = blocks.pop() ?? "";
    for (const block of blocks) yield* itemsOf(block);
  }
}

/** One block is one event; comments and the retry hint carry no data. */
function itemsOf(block: string): StreamItem[] {
  const lines = block.split("\n").filter((line) => line.startsWith("data: "));
  if (lines.length === 0) return [];
  const parsed = StreamItem.safeParse(JSON.parse(lines.map((line) => line.slice(6)).join("\n")));
  return parsed.success ? [parsed.data] : [];
}
