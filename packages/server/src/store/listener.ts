import pg from "pg";
import { systemClock } from "../kernel/clock.ts";
import { every, type Service } from "../kernel/service.ts";

const RECONNECT_MS = 1_000;

export interface ListenerOptions {
  uri: string;
  /** A name of ours, never of a user: it becomes part of the statement. */
  channel: string;
  hear: () => void;
  onError: ((error: unknown) => void) | undefined;
}

/** LISTEN on a connection of its own, which is made again whenever it breaks, also when the first one fails. */
export async function startListener({
  uri,
  channel,
  hear,
  onError,
}: ListenerOptions): Promise<Service> {
  let client: pg.Client | undefined;

  async function connect(): Promise<void> {
    if (client) return;
    const fresh = new pg.Client({
      connectionString: uri,
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
      application_name: "tenure listener",
    });
    fresh.on("error", (error) => onError?.(error));
    fresh.on("end", () => {
      if (client === fresh) client = undefined;
    });
    fresh.on("notification", hear);
    await fresh.connect();
    await fresh.query(`listen ${channel}`);
    client = fresh;
    hear();
  }

  await connect().catch((error) => onError?.(error));
  const reconnecting = every(RECONNECT_MS, connect, {
    clock: systemClock,
    onError: (error) => onError?.(error),
  });
  reconnecting.start();
  return {
    start() {},
    async stop() {
      await reconnecting.stop();
      await client?.end();
    },
  };
}
