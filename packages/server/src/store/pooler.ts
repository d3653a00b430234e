import pg from "pg";
import { sessionSettings, unavailable } from "./postgres.ts";
import { closeSockets, PostgresClient } from "./postgres-client.ts";

const LIMIT_MS = 5_000;

/**
 * Whether a pooler such as PgBouncer answers at this URI. One refuses or drops the settings of a connection, or gives
 * each transaction to whichever server connection is free; then statements carry their settings themselves and have no
 * names. Throws where the pooler allows no transactions.
 */
export async function isPooled(uri: string): Promise<boolean> {
  const found = await withClients(uri, sessionSettings(LIMIT_MS), async (one, other) =>
    (await keepsSettings(one)) ? sharesSessions(one, other) : true,
  ).catch((error: unknown) => isRefusedSetting(error) || unavailable(error));
  if (found) await withClients(uri, {}, requireTransactions).catch(unavailable);
  return found;
}

async function withClients<T>(
  uri: string,
  settings: pg.ClientConfig,
  work: (one: pg.Client, other: pg.Client) => Promise<T>,
): Promise<T> {
  const config = { connectionString: uri, application_name: "tenure", ...settings };
  const limits = { connectionTimeoutMillis: LIMIT_MS, query_timeout: LIMIT_MS };
  const [one, other] = [0, 1].map(() => new PostgresClient({ ...config, ...limits })) as [
    PostgresClient,
    PostgresClient,
  ];
  for (const client of [one, other]) client.on("error", () => {});
  try {
    await one.connect();
    await other.connect();
    return await work(one, other);
  } finally {
    for (const client of [one, other]) void client.end().catch(() => {});
    await closeSockets([one.socket, other.socket].filter((socket) => !socket.pending));
  }
}

/** PgBouncer's error for a setting that it does not know and is not configured to ignore. */
function isRefusedSetting(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /unsupported startup parameter/.test(error.message);
}

async function keepsSettings(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ ms: string }>(
    "select setting as ms from pg_settings where name = 'statement_timeout'",
  );
  return rows[0]?.ms === String(LIMIT_MS);
}

/** Two connections of ours on one session of the server, or one on two: transactions are pooled. */
async function sharesSessions(one: pg.Client, other: pg.Client): Promise<boolean> {
  const sessionOf = async (client: pg.Client) =>
    (await client.query<{ pid: number }>("select pg_backend_pid() as pid")).rows[0]?.pid;
  const first = await sessionOf(one);
  await other.query("begin");
  const second = await sessionOf(other);
  const again = await sessionOf(one);
  await other.query("rollback");
  return first === second || first !== again;
}

async function requireTransactions(client: pg.Client): Promise<void> {
  try {
    await client.query("begin; set local jit = off");
    await client.query("rollback");
  } catch (error) {
    throw new Error(
      `the pooler before Postgres allows no transactions (${(error as Error).message}): set pool_mode to transaction or session`,
      { cause: error },
    );
  }
}
