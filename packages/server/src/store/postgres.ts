import { TenureError } from "@tenure/protocol";
import pg from "pg";
import type { Service } from "../kernel/service.ts";
import { type Db, INT8_OID, type PostgresStore, parseInt8, type Result } from "./db.ts";
import { startListener } from "./listener.ts";
import type { Sql } from "./sql.ts";

export interface PostgresOptions {
  uri: string;
  poolMax?: number;
  /** How long one statement may take. Above it the outcome is unknown and the connection is given up. */
  statementTimeoutMs?: number;
  /** Asked on every new connection before it is used; throwing refuses the connection. */
  onConnect?: (connection: Db) => Promise<void>;
  onError?: (error: unknown) => void;
}

/**
 * A pool on a Postgres server.
 *
 * Nothing is ever sent twice: when a connection breaks under a statement, its outcome is unknown and the
 * caller is told `DEPENDENCY_DOWN`; whoever may ask again does so under the same request id.
 */
export function openPostgres(options: PostgresOptions): PostgresStore {
  const pool = new pg.Pool(poolConfig(options));
  const listeners: Promise<Service>[] = [];
  // An idle connection that breaks reports here; without a listener it would end the process.
  pool.on("error", (error) => options.onError?.(error));
  // The pool hands a client out without any listener. When the server shuts down in the same packet that says it
  // is ready, the error comes before our own listener does, and would end the process too.
  pool.on("connect", (client) => client.on("error", () => {}));

  async function withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await pool.connect().catch(unavailable);
    // While we hold it the pool does not listen, and a broken connection would end the process.
    const onError = (error: Error) => options.onError?.(error);
    client.on("error", onError);
    let broken: Error | undefined;
    try {
      return await work(client);
    } catch (error) {
      if (isConnectionFailure(error)) broken = error as Error;
      return unavailable(error);
    } finally {
      client.off("error", onError);
      client.release(broken);
    }
  }

  return {
    kind: "postgres",
    durability: "Postgres: a write is acknowledged after its commit",
    query: (statement) => withClient((client) => run(client, statement)),
    transaction: (work) => withClient((client) => transact(client, work)),
    script: (text) => withClient((client) => sessionDb(client).script(text)),
    async listen(channel, hear) {
      const { uri, onError } = options;
      const listener = startListener({ uri, channel, hear, onError });
      listeners.push(listener);
      await listener;
    },
    async close() {
      // Also those that are still connecting: one that is up after this would keep the process alive.
      const started = await Promise.allSettled(listeners);
      await Promise.all(started.map((made) => made.status === "fulfilled" && made.value.stop()));
      await pool.end();
    },
  };
}

async function transact<T>(client: pg.PoolClient, work: (tx: Db) => Promise<T>): Promise<T> {
  const tx = sessionDb(client);
  await client.query("begin");
  try {
    const value = await work(tx);
    await client.query("commit");
    return value;
  } catch (error) {
    if (!isConnectionFailure(error)) await client.query("rollback");
    throw error;
  }
}

/** One connection as a `Db`: inside a transaction, or before the pool has it. */
function sessionDb(client: pg.ClientBase): Db {
  const session: Db = {
    query: (statement) => run(client, statement),
    transaction: (work) => work(session),
    script: async (text) => void (await client.query(text)),
  };
  return session;
}

async function run<Row>(client: pg.ClientBase, statement: Sql): Promise<Result<Row>> {
  const { rows, rowCount } = await client.query({
    name: statement.name,
    text: statement.text,
    values: statement.values as unknown[],
  });
  return { rows: rows as Row[], rowCount: rowCount ?? 0 };
}

function poolConfig(options: PostgresOptions): pg.PoolConfig {
  const statementTimeoutMs = options.statementTimeoutMs ?? 5_000;
  const { onConnect } = options;
  return {
    connectionString: options.uri,
    max: options.poolMax ?? 10,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    application_name: "tenure",
    // Every statement of ours is small. Compiling one took 200 ms where running it takes 1.
    options: "-c jit=off",
    statement_timeout: statementTimeoutMs,
    lock_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: statementTimeoutMs,
    // The client's own limit, a little later: it speaks only when the server is silent.
    query_timeout: statementTimeoutMs + 1_000,
    types: { getTypeParser: typeParser as typeof pg.types.getTypeParser },
    ...(onConnect && { onConnect: (client) => onConnect(sessionDb(client)) }),
  };
}

function typeParser(oid: number, format?: "text" | "binary"): (value: string) => unknown {
  if (oid === INT8_OID && format !== "binary") return parseInt8;
  return pg.types.getTypeParser(oid, format as "text");
}

/** Classes 08 (connection), 57P (shutdown), 53 (resources), 25006 (read only: a former primary). */
const UNAVAILABLE = /^(08...|57P..|53...|25006)$/;
const CONNECTION_WORDS =
  /timeout|terminat|ECONN|EPIPE|EHOSTUNREACH|ENOTFOUND|Connection ended|Client has encountered/i;

function isConnectionFailure(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return UNAVAILABLE.test(error.code ?? "");
  return error instanceof Error && CONNECTION_WORDS.test(`${error.message} ${errno(error)}`);
}

/** Time limits that the server itself enforced: the statement did nothing, the connection is well. */
const TIMED_OUT = new Set(["57014", "55P03", "25P03"]);

function unavailable(error: unknown): never {
  if (error instanceof TenureError) throw error;
  const timedOut = error instanceof pg.DatabaseError && TIMED_OUT.has(error.code ?? "");
  if (!timedOut && !isConnectionFailure(error)) throw error;
  const reason = error instanceof Error ? error.message || errno(error) : String(error);
  throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason }, { cause: error });
}

const errno = (error: Error): string => ("code" in error ? String(error.code) : "");
