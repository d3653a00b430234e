import type { Cluster, Redis } from "ioredis";
import type { Db } from "./db.ts";
import { sql } from "./sql.ts";

/** Whether a store can keep our guarantees: `refusals` stop the start, `warnings` are logged. */
export interface SelfCheck {
  refusals: string[];
  warnings: string[];
}

const POSTGRES_VERSION_MIN = 140_000;

/** For a Postgres by URI. The embedded one is ours and known. */
export async function checkPostgres(db: Db): Promise<SelfCheck> {
  const { rows } = await db.query<{
    version: number;
    in_recovery: boolean;
    fsync: string;
    synchronous_commit: string;
  }>(sql`
    select current_setting('server_version_num')::int as version,
           pg_is_in_recovery()                        as in_recovery,
           current_setting('fsync')                   as fsync,
           current_setting('synchronous_commit')      as synchronous_commit`);
  return { refusals: judgePostgres(rows[0]!), warnings: [] };
}

function judgePostgres(found: {
  version: number;
  in_recovery: boolean;
  fsync: string;
  synchronous_commit: string;
}): string[] {
  const refusals: string[] = [];
  if (found.version < POSTGRES_VERSION_MIN) {
    refusals.push(`Postgres ${found.version} is too old: version 14 or later is needed`);
  }
  if (found.in_recovery) {
    refusals.push("Postgres is in recovery (a standby): give the address of the primary");
  }
  if (found.fsync === "off") {
    refusals.push("Postgres has fsync = off: it would lose acknowledged commits in a crash");
  }
  if (found.synchronous_commit === "off") {
    refusals.push(
      "Postgres has synchronous_commit = off: it would lose acknowledged commits in a crash",
    );
  }
  return refusals;
}

/** For every master of a Cluster, or the one Redis there is. */
export async function checkRedis(client: Redis | Cluster): Promise<SelfCheck> {
  const servers = client.isCluster ? (client as Cluster).nodes("master") : [client as Redis];
  const checks = await Promise.all(servers.map(async (server) => judgeRedis(await server.info())));
  return {
    refusals: [...new Set(checks.flatMap((check) => check.refusals))],
    warnings: [...new Set(checks.flatMap((check) => check.warnings))],
  };
}

/** `INFO` and not `CONFIG GET`: managed services forbid the latter. */
export function judgeRedis(info: string): SelfCheck {
  const field = (name: string): string =>
    new RegExp(`^${name}:(.*?)\\r?$`, "m").exec(info)?.[1] ?? "";
  const refusals: string[] = [];
  const warnings: string[] = [];
  const version = field("redis_version");
  if (isOlder(version, [6, 2]))
    refusals.push(`Redis ${version} is too old: version 6.2 or later is needed`);
  const policy = field("maxmemory_policy");
  if (policy !== "noeviction") {
    refusals.push(
      `Redis has maxmemory-policy ${policy}: it would drop jobs in silence; set noeviction`,
    );
  }
  if (field("aof_enabled") !== "1") {
    warnings.push("Redis runs without AOF: its restart loses the jobs in flight");
  }
  if (Number(field("connected_slaves")) > 0) {
    warnings.push("Redis has replicas: a failover is asynchronous and may lose the newest writes");
  }
  return { refusals, warnings };
}

function isOlder(version: string, [major, minor]: [number, number]): boolean {
  const [foundMajor = 0, foundMinor = 0] = version.split(".").map(Number);
  return foundMajor < major || (foundMajor === major && foundMinor < minor);
}
