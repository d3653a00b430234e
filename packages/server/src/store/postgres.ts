import type { Socket } from "node:net";
import { TenureError } from "@tenure/protocol";
import pg from "pg";
import { isConnectionError, reasonOfConnectionError } from "../kernel/connection-error.ts";
import {
  type Db,
  INT8_OID,
  type PostgresStore,
  parseInt8,
  parseTimestamp,
  type Result,
  TIMESTAMPTZ_OID,
} from "./db.ts";
import { createListener } from "./listener.ts";
import { closeSockets, createIdleProbe, PostgresClient } from "./postgres-client.ts";
import type { Sql } from "./sql.ts";
import { isUnavailable } from "./unavailable.ts";

export interface PostgresOptions {
  uri: string;
  poolMax?: number;
  /** How long one statement may take. Above it the outcome is unknown and the connection is given up. */
  statementTimeoutMs?: number;
  /** Behind a pooler: nothing is left to the connection, since the next statement may be on another. */
  isPooled?: boolean;
  onError?: (error: unknown) => void;
  /** LISTEN does not work here; called once. */
  onDeaf?: () => void;
  /** A connection that was idle for this long is probed before it is used. */
  probeAfterIdleMs?: number;
}

const PROBE_AFTER_IDLE_MS = 5_000;

/**
 * A pool on a Postgres server.
 *
 * Nothing is ever sent twice: when a connection breaks under a statement, its outcome is unknown and the
 * caller gets `DEPENDENCY_DOWN`; a caller may retry under the same request id.
 */
export function openPostgres(options: PostgresOptions): PostgresStore {
  const { probeAfterIdleMs = PROBE_AFTER_IDLE_MS } = options;
  const sockets = new Set<Socket>();
  const pool = new pg.Pool({ ...poolConfig(options), Client: watched(sockets) });
  const idle = createIdleProbe(probeAfterIdleMs);
  const { isPooled = false, onDeaf = () => {} } = options;
  const begin = isPooled ? beginWithSettings(options) : "begin";
  const listener = createListener({
    ...(isPooled && { onDeaf }),
    uri: options.uri,
    onError: options.onError,
    probeAfterIdleMs,
  });
  // An idle connection that breaks reports here; without a listener it would end the process.
  pool.on("error", (error) => options.onError?.(error));
  // The pool hands a client out without any listener. When the server shuts down in the same packet that reports it
  // is ready, the error comes before our own listener does, and would end the process too.
  pool.on("connect", (client) => client.on("error", () => {}));

  async function takeClient(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await pool.connect();
      if (await idle.isAlive(client)) return client;
      (client as pg.PoolClient & PostgresClient).socket.destroy();
      client.release(true);
    }
  }

  async function withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await takeClient().catch(unavailable);
    // While we hold it the pool does not listen, and a broken connection would end the process.
    const onError = (error: Error) => options.onError?.(error);
    client.on("error", onError);
    let broken: Error | undefined;
    try {
      return await work(client);
    } catch (error) {
      if (isConnectionFailure(error)) broken = error as Error;
      if (broken?.message === CLIENT_TIMEOUT) idle.silent();
      return unavailable(error);
    } finally {
      client.off("error", onError);
      if (!broken) idle.answered(client);
      client.release(broken);
    }
  }

  return {
    kind: "postgres",
    durability: "Postgres: a write is acknowledged after its commit",
    query: (statement) =>
      withClient((client) =>
        isPooled
          ? transact(client, { begin, isPooled }, (tx) => tx.query(statement))
          : run(client, statement),
      ),
    transaction: (work) => withClient((client) => transact(client, { begin, isPooled }, work)),
    script: (text) => withClient(async (client) => void (await client.query(text))),
    listen: listener.listen,
    // The disk of a server is not seen from here; a write that finds it full fails with DEPENDENCY_DOWN.
    async checkDisk() {},
    async close() {
      // Also one that is still connecting: up after this, it would keep the process alive.
      await listener.stop();
      await pool.end();
      await closeSockets(sockets);
    },
  };
}

/** Clients of a pool whose open sockets are in `sockets`. */
function watched(sockets: Set<Socket>): new () => pg.Client {
  return class extends PostgresClient {
    constructor(config: pg.ClientConfig = {}) {
      super(config);
      sockets.add(this.socket);
      this.socket.once("close", () => sockets.delete(this.socket));
    }
  };
}

async function transact<T>(
  client: pg.PoolClient,
  { begin, isPooled }: { begin: string; isPooled: boolean },
  work: (tx: Db) => Promise<T>,
): Promise<T> {
  const tx = sessionDb(client, isPooled);
  await client.query(begin);
  try {
    const value = await work(tx);
    await client.query("commit");
    return value;
  } catch (error) {
    if (!isConnectionFailure(error)) await client.query("rollback");
    throw error;
  }
}

/** One connection as a `Db`, inside a transaction. */
function sessionDb(client: pg.ClientBase, isPooled: boolean): Db {
  const session: Db = {
    // A named statement stays with the server's session, which a pooler gives to another client next.
    query: (statement) => run(client, isPooled ? { ...statement, name: undefined } : statement),
    transaction: (work) => work(session),
    script: async (text) => void (await client.query(text)),
  };
  return session;
}

async function run<Row>(
  client: pg.ClientBase,
  { name, text, values }: Omit<Sql, "name"> & { name: string | undefined },
): Promise<Result<Row>> {
  const { rows, rowCount } = await client.query({
    ...(name !== undefined && { name }),
    text,
    values: values as unknown[],
  });
  return { rows: rows as Row[], rowCount: rowCount ?? 0 };
}

function poolConfig(options: PostgresOptions): pg.PoolConfig {
  const { statementTimeoutMs = STATEMENT_TIMEOUT_MS } = options;
  return {
    connectionString: options.uri,
    max: options.poolMax ?? 10,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    application_name: "tenure",
    ...(!options.isPooled && sessionSettings(statementTimeoutMs)),
    // The client's own limit, a little later: it speaks only when the server is silent.
    query_timeout: statementTimeoutMs + 1_000,
    types: { getTypeParser: typeParser as typeof pg.types.getTypeParser },
  };
}

const STATEMENT_TIMEOUT_MS = 5_000;

/** What a connection of ours asks for when it is made. */
export function sessionSettings(limitMs: number): pg.ClientConfig {
  return {
    // Every statement of ours is small. Compiling one took 200 ms where running it takes 1.
    options: "-c jit=off",
    statement_timeout: limitMs,
    lock_timeout: limitMs,
    idle_in_transaction_session_timeout: limitMs,
  };
}

/** The same for one transaction, in one round trip. */
function beginWithSettings({ statementTimeoutMs = STATEMENT_TIMEOUT_MS }: PostgresOptions): string {
  const limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
  return [
    "begin",
    "set local jit = off",
    ...limits.map((name) => `set local ${name} = ${statementTimeoutMs}`),
  ].join("; ");
}

function typeParser(oid: number, format?: "text" | "binary"): (value: string) => unknown {
  if (oid === INT8_OID && format !== "binary") return parseInt8;
  if (oid === TIMESTAMPTZ_OID && format !== "binary") return parseTimestamp;
  return pg.types.getTypeParser(oid, format as "text");
}

/** The error of node-postgres when `query_timeout` has passed without a reply. */
const CLIENT_TIMEOUT = "Query read timeout";

const CLIENT_WORDS =
  /timeout|terminat|Connection ended|Client (has encountered|was closed)|SSL connection/i;

function isConnectionFailure(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return isUnavailable(error.code);
  return isConnectionError(error) || (error instanceof Error && CLIENT_WORDS.test(error.message));
}

/** Time limits that the server itself enforced: the statement did nothing, the connection is well. */
const TIMED_OUT = new Set(["57014", "55P03", "25P03"]);

export function unavailable(error: unknown): never {
  if (error instanceof TenureError) throw error;
  const timedOut = error instanceof pg.DatabaseError && TIMED_OUT.has(error.code ?? "");
  if (!timedOut && !isConnectionFailure(error)) throw error;
  const reason = reasonOfConnectionError(error as Error);
  throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason }, { cause: error });
}
