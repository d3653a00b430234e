import type { Clock } from "../kernel/clock.ts";
import type { RedisStore } from "../store/redis.ts";
import { deliveryKeys } from "./delivery-keys.ts";
import type { InboxView } from "./inbox-store.ts";
import type { InboxEntry } from "./message-policy.ts";

export interface Reader {
  /** Waits up to `blockMs` for unread messages. `closed`: there is no such inbox. */
  read(countMax: number): Promise<InboxEntry[] | "closed">;
  close(): void;
}

/** How much later than `blockMs` the reply may arrive. */
const ANSWER_MARGIN_MS = 2_000;

/**
 * Reads an inbox on its own connection: on a shared one every other command would wait behind the blocking read.
 *
 * A blocking command has no timeout of the client, and on a connection that died silently its reply never arrives. So the
 * wait is bounded here, and a connection that exceeds it is replaced. Messages that were read over it are pending, and
 * the next scan reclaims them.
 */
export function createReader({
  store,
  view,
  blockMs,
  clock,
}: {
  store: RedisStore;
  view: InboxView;
  blockMs: number;
  clock: Clock;
}): Reader {
  const inbox = deliveryKeys.inbox(store.prefix, view.instanceId);
  let connection: ReturnType<RedisStore["blockingConnection"]> | undefined;

  async function read(countMax: number): Promise<InboxEntry[] | "closed"> {
    connection ??= store.blockingConnection(blockMs);
    if (connection.status !== "ready") await becomesReady(connection, blockMs + ANSWER_MARGIN_MS);
    const answered = new AbortController();
    const { group, consumer } = view;
    try {
      const reply = await Promise.race([
        connection.xreadgroup(
          ...(["GROUP", group, consumer, "COUNT", countMax] as const),
          ...(["BLOCK", blockMs, "STREAMS", inbox, ">"] as const),
        ),
        late(blockMs + ANSWER_MARGIN_MS, answered.signal),
      ]);
      if (reply !== "late") return entriesOf(reply);
      throw new Error(`no reply to a blocking read of ${blockMs} ms`);
    } catch (error) {
      if (/^(NOGROUP|UNBLOCKED)/.test((error as Error).message)) return "closed";
      close();
      throw error;
    } finally {
      answered.abort();
    }
  }

  /** A reply that arrived while the process stood still wins: it is read from the socket before the immediate runs. */
  async function late(limitMs: number, signal: AbortSignal): Promise<"late"> {
    await clock.sleep(limitMs, signal);
    await new Promise((resolve) => setImmediate(resolve));
    return "late";
  }

  function close(): void {
    connection?.disconnect();
    connection = undefined;
  }

  return { read, close };
}

/** Without an offline queue a command fails at once while the connection is not up. */
function becomesReady(
  connection: ReturnType<RedisStore["blockingConnection"]>,
  limitMs: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      connection.off("ready", ready);
      reject(new Error(`no connection to Redis within ${limitMs} ms`));
    }, limitMs);
    const ready = () => {
      clearTimeout(timer);
      resolve();
    };
    connection.once("ready", ready);
  });
}

function entriesOf(reply: unknown): InboxEntry[] {
  const [stream] = (reply ?? []) as [string, [string, string[]][]][];
  return (stream?.[1] ?? []).map(([id, fields]) => ({ id, text: textOf(fields), deliveries: 0 }));
}

/** The field `m`, or an empty text, which cannot be parsed as a message. */
function textOf(fields: string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "m");
  return fields[at + 1] && at >= 0 ? fields[at + 1]! : "";
}
