import type { Clock } from "../kernel/clock.ts";
import type { RedisStore } from "../store/redis.ts";
import { deliveryKeys } from "./delivery-keys.ts";
import type { InboxView } from "./inbox-store.ts";
import type { InboxEntry } from "./message-policy.ts";

export interface Reader {
  /** Waits up to `blockMs` for messages nobody has read yet. `closed`: there is no such inbox. */
  read(countMax: number): Promise<InboxEntry[] | "closed">;
  close(): void;
}

/** How long after its own limit an answer may still come. */
const ANSWER_MARGIN_MS = 2_000;

/**
 * Reads an inbox on a connection of its own: on a shared one every other command would wait behind it.
 *
 * A blocking command has no limit but its own, and on a connection that died without a word its answer never
 * comes. So the wait is bounded here, and a connection that let it pass is replaced. What it may have
 * delivered to nobody is pending, and will be reclaimed.
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
        clock.sleep(blockMs + ANSWER_MARGIN_MS, answered.signal).then(() => "late" as const),
      ]);
      if (reply !== "late") return entriesOf(reply);
      throw new Error(`no answer to a read that should have ended after ${blockMs} ms`);
    } catch (error) {
      if (/^(NOGROUP|UNBLOCKED)/.test((error as Error).message)) return "closed";
      close();
      throw error;
    } finally {
      answered.abort();
    }
  }

  function close(): void {
    connection?.disconnect();
    connection = undefined;
  }

  return { read, close };
}

/** Without an offline queue a command before the connection is up would fail at once, again and again. */
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

/** The field `m`, or nothing that could be read as a message. */
function textOf(fields: string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "m");
  return fields[at + 1] && at >= 0 ? fields[at + 1]! : "";
}
