import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { PemFiles } from "../kernel/pem-files.ts";
import type { Telemetry } from "../telemetry.ts";
import type { PostgresStore } from "./db.ts";
import type { HotStore } from "./hot-store.ts";
import { openMemory } from "./memory.ts";
import { migrate } from "./migrate.ts";
import { isPooled } from "./pooler.ts";
import { openPostgres, type PostgresOptions } from "./postgres.ts";
import { withExplicitSslMode } from "./postgres-uri.ts";
import { closeTree, makePrivateDirectory } from "./private-directory.ts";
import { checkPostgres, checkRedis, type SelfCheck } from "./self-check.ts";

export interface Stores {
  db: PostgresStore;
  /** The same Postgres for writes under a lease, with timeouts shorter than the lease. */
  leaseDb: PostgresStore;
  /** The same Postgres for presence only: requests of clients and nodes cannot use up its connections. */
  presenceDb: PostgresStore;
  hot: HotStore;
  close(): Promise<void>;
}

export interface StoreContext {
  config: Config;
  clock: Clock;
  log: Log;
  telemetry: Telemetry;
}

const REDIS_FIRST_CONNECT_MS = 10_000;
const MIGRATION_LIMIT_MS = 10 * 60_000;

/** Opens the configured stores: self-checked, migrated, ready to use. */
export async function openStores(context: StoreContext): Promise<Stores> {
  const route = await findRoute(context);
  const { db, presenceDb } = await openDatabase(context, route);
  const leaseDb = openLeaseDatabase(context, { db, route });
  const closeDatabases = async () => {
    if (db.kind !== "embedded") await Promise.all([leaseDb.close(), presenceDb.close()]);
    await db.close();
  };
  try {
    const hot = await openHot(context);
    return {
      db,
      leaseDb,
      presenceDb,
      hot,
      async close() {
        await hot.close();
        await closeDatabases();
      },
    };
  } catch (error) {
    await closeDatabases();
    throw error;
  }
}

/** The options of every connection of this instance to Postgres. */
type Route = Pick<PostgresOptions, "uri" | "isPooled" | "onError" | "onDeaf">;

async function findRoute({ config, log }: StoreContext): Promise<Route> {
  const { uri, replaced } = withExplicitSslMode(config.server.postgres_uri);
  if (replaced !== undefined)
    log.info(
      { event: "postgres.verified", sslmode: replaced },
      `sslmode=${replaced} means verify-full here: certificate and name of Postgres are checked; sslrootcert names a private CA`,
    );
  const onError = onConnectionLost(log);
  if (uri === "" || !(await isPooled(uri))) return { uri, onError };
  log.warn(
    { event: "postgres.pooled" },
    "Postgres is behind a pooler: each statement is a transaction that carries its own settings, which takes two more round trips",
  );
  const onDeaf = () =>
    log.warn(
      { event: "postgres.unheard" },
      "LISTEN does not work through this pooler: changes are found by polling every few seconds",
    );
  return { uri, isPooled: true, onError, onDeaf };
}

async function openDatabase(
  context: StoreContext,
  route: Route,
): Promise<Pick<Stores, "db" | "presenceDb">> {
  const { config, log } = context;
  const { uri, onError } = route;
  if (uri === "") {
    const dataDir = openDataDirectory(config.server.data_dir, log);
    const { openPglite } = await import("./embedded/pglite.ts");
    const onOpening = () =>
      log.info(
        { event: "postgres.opening", dataDir },
        "opening the embedded database; the first start takes some seconds",
      );
    const db = await openPglite({ dataDir, onOpening, ...(onError && { onError }) });
    await runMigrations(db, log);
    return { db, presenceDb: db.first };
  }
  // Migrations may take longer than any other statement: they have a connection with its own timeout.
  const migrator = openPostgres({
    ...route,
    poolMax: 1,
    statementTimeoutMs: MIGRATION_LIMIT_MS,
  });
  try {
    enforce(await checkPostgres(migrator), log);
    await runMigrations(migrator, log);
  } finally {
    await migrator.close();
  }
  const share = shareConnections(config.server.postgres_connections_max);
  const db = openPostgres({ ...route, poolMax: share.general });
  const presence = openPostgres({ ...route, poolMax: share.presence });
  return { db, presenceDb: { ...presence, listen: db.listen } };
}

/** Makes the directory of the embedded store private. Releases up to 0.1.0 made it open, with files of mode 0666. */
function openDataDirectory(path: string, log: Log): string {
  const dataDir = resolve(path);
  const formerMode = makePrivateDirectory(dataDir);
  if (formerMode === undefined) return dataDir;
  const paths = ["postgres", "lock"].map((name) => join(dataDir, name));
  for (const path of paths.filter((one) => existsSync(one))) closeTree(path);
  log.warn(
    { event: "store.directory-closed", dataDir, formerMode: formerMode.toString(8) },
    "data_dir was open to other users of this machine; now only this user can enter it",
  );
  return dataDir;
}

/** Divides the connections: one for LISTEN, some for presence, half of the rest for leases. */
function shareConnections(max: number): { general: number; lease: number; presence: number } {
  const presence = max < PRESENCE_SPLIT_FROM ? 1 : 2;
  const lease = Math.floor((max - 1 - presence) / 2);
  return { presence, lease, general: max - 1 - presence - lease };
}

/** From this many connections on presence has two: a slow read of the members does not delay a renewal. */
const PRESENCE_SPLIT_FROM = 9;

/**
 * Opens separate connections for leases. Many requests for one signer cannot use up the connections of everything else,
 * and a statement with a timeout of half a lease cannot outlive the lease it was sent under.
 */
function openLeaseDatabase(
  { config }: StoreContext,
  { db, route }: { db: PostgresStore; route: Route },
): PostgresStore {
  if (db.kind === "embedded") return db;
  return openPostgres({
    ...route,
    poolMax: shareConnections(config.server.postgres_connections_max).lease,
    statementTimeoutMs: Math.min(5_000, Math.floor(config.nonce.lease_ttl_ms / 2)),
  });
}

const onConnectionLost = (log: Log) => (error: unknown) =>
  log.warn(
    { event: "postgres.connection-lost", error },
    "lost a connection to Postgres; the pool opens a new one",
  );

async function runMigrations(db: PostgresStore, log: Log): Promise<void> {
  const names = await migrate(db);
  if (names.length > 0) log.info({ event: "schema.migrated", names }, "migrations ran");
  log.info({ event: "postgres.opened", kind: db.kind, durability: db.durability }, db.durability);
}

async function openHot({ config, clock, log, telemetry }: StoreContext): Promise<HotStore> {
  const { phase2 } = config.scheduler;
  if (!phase2.enabled) return openMemory({ prefix: phase2.redis.key_prefix, clock });
  // Loaded only with Redis: the client takes 10 MB.
  const { openRedis, waitUntilReady } = await import("./redis.ts");
  const store = openRedis({
    mode: phase2.redis.mode,
    urls: phase2.redis.mode === "cluster" ? phase2.redis.cluster_urls : [phase2.redis.url],
    prefix: phase2.redis.key_prefix,
    tls: openRedisTls(config),
    onError: (error) =>
      log.warn(
        { event: "redis.connection-lost", error },
        "lost a connection to Redis; reconnecting",
      ),
    onOp: (op, result) => telemetry.redisOps.inc({ op, result }),
  });
  try {
    await waitUntilReady(store, REDIS_FIRST_CONNECT_MS);
    enforce(await checkRedis(store.client), log);
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** The certificates for Redis; undefined where Node's own CAs are enough. */
function openRedisTls({ scheduler: { phase2 } }: Config): PemFiles | undefined {
  const named = (name: "ca_file" | "cert_file" | "key_file") => {
    const path = phase2.redis[name];
    return path === "" ? undefined : { name: `scheduler.phase2.redis.${name}`, path };
  };
  const paths = { ca: named("ca_file"), cert: named("cert_file"), key: named("key_file") };
  return paths.ca || paths.cert ? new PemFiles(paths) : undefined;
}

/** Refuses to start on a store that cannot keep our guarantees; logs what may break them later. */
function enforce({ refusals, warnings }: SelfCheck, log: Log): void {
  if (refusals.length > 0) throw new Error(refusals.join("; "));
  for (const warning of warnings) log.warn({ event: "store.doubted", warning }, warning);
}
