import { signal } from "@preact/signals";
import type { StreamItem } from "@tenure/protocol";
import { ApiError, refusalOf } from "./api.ts";

export type Topic = StreamItem["topic"];

export interface Connection {
  state: "connecting" | "live" | "lost";
  /** When the server was heard last, by this machine's clock; undefined before the first time. */
  heardAtMs: number | undefined;
}

/** Whether this page is told of changes, and how old what it shows is when it is not. */
export const connection = signal<Connection>({ state: "connecting", heardAtMs: undefined });

const PATH = "/api/v1/stream";
/** The server says something every 15 s; silence for longer than this is a dead connection. */
const SILENCE_MAX_MS = 40_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 15_000;

type Listener = (item: StreamItem) => void;
const listeners = new Map<Topic, Set<Listener>>();
const readers = new Set<() => void>();

/** Gives back what ends it. */
export function onChange(topic: Topic, listener: Listener): () => void {
  const known = listeners.get(topic) ?? new Set();
  listeners.set(topic, known.add(listener));
  return () => known.delete(listener);
}

/** Called at every connect: what changed before it was told to nobody, so lists are read again. */
export function onConnect(reader: () => void): () => void {
  readers.add(reader);
  return () => readers.delete(reader);
}

let stopping: AbortController | undefined;

export function startLive(): void {
  stopLive();
  stopping = new AbortController();
  void run(stopping.signal);
}

export function stopLive(): void {
  stopping?.abort();
  connection.value = { state: "connecting", heardAtMs: undefined };
}

async function run(stopped: AbortSignal): Promise<void> {
  let waitMs = RETRY_MIN_MS;
  while (!stopped.aborted) {
    const isHeard = await follow(stopped).catch((error) => {
      if (error instanceof ApiError && error.status === 401) stopLive();
      return false;
    });
    if (stopped.aborted) return;
    connection.value = { ...connection.value, state: "lost" };
    waitMs = isHeard ? RETRY_MIN_MS : Math.min(waitMs * 2, RETRY_MAX_MS);
    await sleep(waitMs * (0.75 + Math.random() / 2), stopped);
  }
}

/** One connection, until it breaks. Resolves to whether anything was heard on it. */
async function follow(stopped: AbortSignal): Promise<boolean> {
  const silence = new AbortController();
  let watchdog = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
  try {
    const signal = AbortSignal.any([stopped, silence.signal]);
    const response = await fetch(PATH, { signal, credentials: "same-origin" });
    if (!response.ok || !response.body) throw await refusalOf(response);
    connection.value = { state: "live", heardAtMs: Date.now() };
    for (const read of readers) read();
    await readEvents(response.body, (items) => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
      heard();
      for (const item of items) for (const listen of listeners.get(item.topic) ?? []) listen(item);
    });
    return true;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    return connection.value.state === "live";
  } finally {
    clearTimeout(watchdog);
  }
}

/** A busy fleet speaks a thousand times a second; the page need not be told that often that it does. */
function heard(): void {
  const { state, heardAtMs = 0 } = connection.value;
  if (Date.now() - heardAtMs < 1_000 && state === "live") return;
  connection.value = { state: "live", heardAtMs: Date.now() };
}

/** By hand, not by EventSource: that one tells neither a refusal from an outage nor that a comment came. */
export async function readEvents<T = StreamItem>(
  body: ReadableStream<Uint8Array>,
  hear: (items: T[]) => void,
): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let unread = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (unread + decoder.decode(value, { stream: true })).split("\n\n");
    unread = blocks.pop() ?? "";
    hear(blocks.flatMap((block) => dataOf<T>(block)));
  }
}

function dataOf<T>(block: string): T[] {
  const lines = block.split("\n").filter((line) => line.startsWith("data: "));
  if (lines.length === 0) return [];
  return [JSON.parse(lines.map((line) => line.slice(6)).join("\n")) as T];
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
