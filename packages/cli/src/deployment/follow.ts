import { fromErrorBody, LogLines, ROUTES } from "@tenure/protocol";

/** Lines of a log as they come, until the node or the caller ends it. */
export async function* followLog({
  url,
  token,
  id,
  query,
  signal,
}: {
  url: string;
  token: string | undefined;
  id: string;
  query: Record<string, string>;
  signal: AbortSignal;
}): AsyncGenerator<string[]> {
  const target = new URL(ROUTES.readLogs.path.replace(":id", encodeURIComponent(id)), url);
  target.search = new URLSearchParams({ ...query, follow: "true" }).toString();
  const response = await fetch(target, {
    signal,
    ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
  });
  if (!response.ok || !response.body)
    throw fromErrorBody(await response.json().catch(() => undefined), response.status);
  yield* linesOf(response.body);
}

/** Server-sent events: what stands after `data:`, one event between empty lines. */
async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      if (/^event: end$/m.test(event)) return;
      const [, data] = /^data: (.*)$/m.exec(event) ?? [];
      if (data !== undefined) yield LogLines.parse(JSON.parse(data)).lines;
    }
  }
}
