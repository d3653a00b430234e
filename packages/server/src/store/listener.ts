import { systemClock } from "../kernel/clock.ts";
import { every } from "../kernel/service.ts";
import { closeSockets, PostgresClient, probe } from "./postgres-client.ts";

const RECONNECT_MS = 1_000;
const ANSWER_LIMIT_MS = 5_000;
const RECEIVE_LIMIT_MS = 2_000;

export interface ListenerOptions {
  uri: string;
  /** A connection without a word of the server for this long is probed. */
  probeAfterIdleMs: number;
  onError: ((error: unknown) => void) | undefined;
  /** Given behind a pooler, where LISTEN may reach nothing: it is tested, and not used when no notification arrives. */
  onDeaf?: () => void;
}

export interface Listener {
  /**
   * Calls `listener` at every notification, and once after each connect, because one may have been missed. `channel` is a name of
   * ours, never of a user: it becomes part of the statement. Resolves after the first attempt to connect.
   */
  listen(channel: string, listener: () => void): Promise<void>;
  stop(): Promise<void>;
}

/**
 * LISTEN for all channels on one connection of its own, which is made again whenever it breaks, also when the first one fails.
 *
 * It sends nothing by itself, so without a probe a connection that was cut off without a reset would look healthy.
 */
export function createListener(options: ListenerOptions): Listener {
  const { uri, onError } = options;
  const listeners = new Map<string, (() => void)[]>();
  let client: PostgresClient | undefined;
  let connecting: Promise<void> | undefined;
  let answeredAtMs = 0;
  let isDeaf = false;
  const watching = every(RECONNECT_MS, watch, {
    clock: systemClock,
    onError: (error) => onError?.(error),
  });

  const connect = (): Promise<void> =>
    (connecting ??= open().finally(() => {
      connecting = undefined;
    }));

  async function open(): Promise<void> {
    const fresh = new PostgresClient({
      connectionString: uri,
      connectionTimeoutMillis: ANSWER_LIMIT_MS,
      query_timeout: ANSWER_LIMIT_MS,
      application_name: "tenure listener",
    });
    fresh.on("error", (error) => onError?.(error));
    fresh.on("end", () => {
      if (client === fresh) client = undefined;
    });
    fresh.on("notification", ({ channel }) => listeners.get(channel)?.forEach(call));
    try {
      await fresh.connect();
      // Also those that are added meanwhile: the last statement and the next line are one step.
      for (const channel of listeners.keys()) await fresh.query(`listen ${channel}`);
      isDeaf = options.onDeaf !== undefined && !(await receives(fresh, uri));
    } catch (error) {
      fresh.socket.destroy();
      throw error;
    }
    if (isDeaf) {
      fresh.socket.destroy();
      return options.onDeaf?.();
    }
    client = fresh;
    answeredAtMs = performance.now();
    for (const each of listeners.values()) each.forEach(call);
  }

  async function watch(): Promise<void> {
    if (isDeaf) return;
    if (!client) return connect();
    if (performance.now() - answeredAtMs < options.probeAfterIdleMs) return;
    const probed = client;
    try {
      await probe(probed);
      answeredAtMs = performance.now();
    } catch (error) {
      giveUp(probed, error);
      await connect();
    }
  }

  function giveUp(broken: PostgresClient, error: unknown): void {
    if (client === broken) client = undefined;
    broken.socket.destroy();
    onError?.(error);
  }

  return {
    async listen(channel, listener) {
      const known = listeners.get(channel);
      listeners.set(channel, [...(known ?? []), listener]);
      if (isDeaf) return;
      const open = client;
      if (!open) {
        await connect().catch((error) => onError?.(error));
        watching.start();
        return;
      }
      if (!known)
        await open.query(`listen ${channel}`).catch((error: unknown) => giveUp(open, error));
      listener();
    },
    async stop() {
      await connecting?.catch(() => {});
      await watching.stop();
      if (!client) return;
      const last = client;
      void last.end();
      await closeSockets([last.socket]);
    },
  };
}

const call = (listener: () => void): void => listener();

/** Whether a NOTIFY from another connection arrives. PgBouncer drops it unless it pools by session. */
async function receives(listening: PostgresClient, uri: string): Promise<boolean> {
  const received = new AbortController();
  listening.on("notification", ({ channel }) => channel === TEST_CHANNEL && received.abort());
  await listening.query(`listen ${TEST_CHANNEL}`);
  const caller = new PostgresClient({
    connectionString: uri,
    connectionTimeoutMillis: ANSWER_LIMIT_MS,
    query_timeout: ANSWER_LIMIT_MS,
  });
  caller.on("error", () => {});
  try {
    await caller.connect();
    await caller.query(`notify ${TEST_CHANNEL}`);
    await systemClock.sleep(RECEIVE_LIMIT_MS, received.signal);
    return received.signal.aborted;
  } finally {
    caller.socket.destroy();
  }
}

const TEST_CHANNEL = "tenure_listener_test";
