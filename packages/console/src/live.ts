import { signal } from "@preact/signals";
import type { StreamItem } from "@tenure/protocol";
import { readServerEvents } from "@tenure/sdk/sse";
import { ApiError, errorOf } from "./api.ts";

export type Topic = StreamItem["topic"];

export interface Connection {
  state: "connecting" | "live" | "lost";
  /** Time of the last data, by the local clock; undefined before the first connection. */
  receivedAtMs: number | undefined;
}

/** State of the stream of changes, and the age of the shown data. */
export const connection = signal<Connection>({ state: "connecting", receivedAtMs: undefined });

const PATH = "/api/v1/stream";
/** The server sends a keep-alive every 15 s; after this time without data the connection is dead. */
const SILENCE_MAX_MS = 40_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 15_000;

type Listener = (item: StreamItem) => void;
const listeners = new Map<Topic, Set<Listener>>();
const readers = new Set<() => void>();

/** Subscribes to a topic. Returns the unsubscribe function. */
export function onChange(topic: Topic, listener: Listener): () => void {
  const known = listeners.get(topic) ?? new Set();
  listeners.set(topic, known.add(listener));
  return () => known.delete(listener);
}

/** Subscribes to connects. Changes before a connect were missed, so lists are read again. */
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
  connection.value = { state: "connecting", receivedAtMs: undefined };
}

async function run(stopped: AbortSignal): Promise<void> {
  let waitMs = RETRY_MIN_MS;
  while (!stopped.aborted) {
    const hasReceived = await follow(stopped).catch((error) => {
      if (error instanceof ApiError && error.status === 401) stopLive();
      return false;
    });
    if (stopped.aborted) return;
    connection.value = { ...connection.value, state: "lost" };
    waitMs = hasReceived ? RETRY_MIN_MS : Math.min(waitMs * 2, RETRY_MAX_MS);
    await sleep(waitMs * (0.75 + Math.random() / 2), stopped);
  }
}

/** Reads one connection until it breaks. Resolves to whether it received data. */
async function follow(stopped: AbortSignal): Promise<boolean> {
  const silence = new AbortController();
  let watchdog = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
  try {
    const signal = AbortSignal.any([stopped, silence.signal]);
    const response = await fetch(PATH, { signal, credentials: "same-origin" });
    if (!response.ok || !response.body) throw await errorOf(response);
    connection.value = { state: "live", receivedAtMs: Date.now() };
    for (const read of readers) read();
    for await (const events of readServerEvents(response.body)) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
      markReceived();
      for (const { data } of events) {
        const item: StreamItem = JSON.parse(data);
        for (const listen of listeners.get(item.topic) ?? []) listen(item);
      }
    }
    return true;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    return connection.value.state === "live";
  } finally {
    clearTimeout(watchdog);
  }
}

/** Records received data, at most once per second: a busy fleet sends a thousand items per second. */
function markReceived(): void {
  const { state, receivedAtMs = 0 } = connection.value;
  if (Date.now() - receivedAtMs < 1_000 && state === "live") return;
  connection.value = { state: "live", receivedAtMs: Date.now() };
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
