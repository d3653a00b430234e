import { expect, test } from "vitest";
import { readServerEvents, type ServerEvent } from "./sse.ts";

/** A stream of these chunks, and whether its reader cancelled it. */
function streamOf(chunks: Uint8Array[]) {
  const state = { isCancelled: false };
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
    },
    cancel() {
      state.isCancelled = true;
    },
  });
  return { body, state };
}

const TEXT = [
  "retry: 1000\n\n",
  ": keep-alive\n\n",
  'event: job\ndata: {"a":\ndata: "é😀"}\n\n',
  "data: last\n\n",
  "data: never completed",
].join("");
const EVENTS: ServerEvent[] = [
  { event: "job", data: '{"a":\n"é😀"}' },
  { event: "", data: "last" },
];

test.each([1, 2, 3, 7, 1_000])("chunks of %i bytes give the same events", async (size) => {
  const bytes = new TextEncoder().encode(TEXT);
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  const { body, state } = streamOf(chunks);
  const events: ServerEvent[] = [];
  for await (const batch of readServerEvents(body)) {
    events.push(...batch);
    if (events.length === EVENTS.length) break;
  }
  expect(events).toEqual(EVENTS);
  expect(state.isCancelled).toBe(true);
});

test("a comment yields an empty batch, so that a reader sees the connection is alive", async () => {
  const { body } = streamOf([new TextEncoder().encode(": keep-alive\n\n")]);
  const { value } = await readServerEvents(body).next();
  expect(value).toEqual([]);
});
