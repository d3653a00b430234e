/** One server-sent event. */
export interface ServerEvent {
  event: string;
  data: string;
}

/**
 * Parses a stream of server-sent events. Yields once per chunk that arrives, with an empty array when it completes no event:
 * comments are a sign of life too. `EventSource` hides them, and does not distinguish a refusal from an outage.
 */
export async function* readServerEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerEvent[]> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let unread = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (unread + decoder.decode(value, { stream: true })).split("\n\n");
      unread = blocks.pop() ?? "";
      yield blocks.flatMap(parseEvent);
    }
  } finally {
    // Frees the connection when the caller stops early. A stream that has failed rejects.
    await reader.cancel().catch(() => {});
  }
}

/** A block without data is a comment or the retry hint. */
function parseEvent(block: string): ServerEvent[] {
  const valuesOf = (field: string) =>
    block.split("\n").flatMap((line) => (line.startsWith(field) ? [line.slice(field.length)] : []));
  const data = valuesOf("data: ");
  return data.length === 0 ? [] : [{ event: valuesOf("event: ")[0] ?? "", data: data.join("\n") }];
}
