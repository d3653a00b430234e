import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type User, unprivilegedUser } from "../processes/run-as.ts";
import { bringNats } from "./bring-nats.ts";
import { bringPgBouncer } from "./bring-pgbouncer.ts";
import { bringPostgres } from "./bring-postgres.ts";
import { bringRedis } from "./bring-redis.ts";
import { isAtLeast, type ProgramDirectory, versionOf } from "./program.ts";

/** Programs that were seen to work. */
export interface Programs extends ProgramDirectory {
  version: string;
}

/** The tests cannot run here. The message is one sentence that says what to do. */
export class ProgramsMissing extends Error {}

/** `TENURE_TEST_POSTGRES_BIN`, else the machine's own, else the binaries inside an npm package. */
export async function findPostgres(): Promise<Programs> {
  const user = unprivilegedUser();
  const kind = { program: "postgres", beside: "initdb", versionMin: "14" };
  const found = await findOnMachine(kind, {
    wish: process.env.TENURE_TEST_POSTGRES_BIN,
    directories: [...pathDirectories(), ...debianPostgresDirectories()],
    user,
  });
  if (found !== undefined) return found;
  return accept(kind, await explain(bringPostgres(user), "PostgreSQL 14", kind.program), user);
}

/** `TENURE_TEST_REDIS_BIN`, else PATH, else the distribution's package, unpacked but not installed. */
export async function findRedis(): Promise<Programs> {
  const kind = { program: "redis-server", beside: "redis-cli", versionMin: "6.2" };
  const found = await findOnMachine(kind, {
    wish: process.env.TENURE_TEST_REDIS_BIN,
    directories: pathDirectories(),
  });
  if (found !== undefined) return found;
  return accept(kind, await explain(bringRedis(), "Redis 6.2", kind.program));
}

/** `TENURE_TEST_PGBOUNCER_BIN`, else the machine's own, else the distribution's package, unpacked but not installed. */
export async function findPgBouncer(): Promise<Programs> {
  const kind = { program: "pgbouncer", beside: "pgbouncer", versionMin: "1.16" };
  const user = unprivilegedUser();
  const found = await findOnMachine(kind, {
    wish: process.env.TENURE_TEST_PGBOUNCER_BIN,
    directories: [...pathDirectories(), "/usr/sbin"],
    user,
  });
  if (found !== undefined) return found;
  return accept(kind, await explain(bringPgBouncer(), "PgBouncer 1.16", kind.program), user);
}

/** `TENURE_TEST_NATS_BIN`, else the machine's own, else the distribution's package, unpacked but not installed. */
export async function findNats(): Promise<Programs> {
  const kind = { program: "nats-server", beside: "nats-server", versionMin: "2.9" };
  const found = await findOnMachine(kind, {
    wish: process.env.TENURE_TEST_NATS_BIN,
    directories: [...pathDirectories(), "/usr/sbin"],
  });
  if (found !== undefined) return found;
  return accept(kind, await explain(bringNats(), "NATS 2.9", kind.program));
}

interface Kind {
  program: string;
  beside: string;
  versionMin: string;
}

/** `wish` is a directory, or "bring" to pass over what the machine has. */
async function findOnMachine(
  kind: Kind,
  where: { wish: string | undefined; directories: string[]; user?: User | undefined },
): Promise<Programs | undefined> {
  const { wish, user } = where;
  if (wish === "bring") return undefined;
  if (wish) return accept(kind, { directory: wish, origin: "as set", env: {} }, user);
  for (const directory of where.directories) {
    const version = await workingVersion(kind, { directory, env: {} }, user);
    if (version) return { directory, version, origin: "this machine's", env: {} };
  }
  return undefined;
}

async function accept(kind: Kind, candidate: ProgramDirectory, user?: User): Promise<Programs> {
  const version = await workingVersion(kind, candidate, user);
  if (version) return { ...candidate, version };
  const runner = user === undefined ? "" : ` that user ${user.name} can run`;
  throw new ProgramsMissing(
    `There is no ${kind.program} (${kind.versionMin} or later, with ${kind.beside} beside it)` +
      `${runner} in ${candidate.directory}.`,
  );
}

async function workingVersion(
  { program, beside, versionMin }: Kind,
  { directory, env }: Pick<ProgramDirectory, "directory" | "env">,
  user?: User,
): Promise<string | undefined> {
  if (!existsSync(join(directory, beside))) return undefined;
  const version = await versionOf(join(directory, program), { env, user });
  return version !== undefined && isAtLeast(version, versionMin) ? version : undefined;
}

async function explain<T>(bringing: Promise<T>, wanted: string, program: string): Promise<T> {
  const variable = `TENURE_TEST_${program.split("-")[0]?.toUpperCase()}_BIN`;
  return bringing.catch((error: Error) => {
    const reason = error.message.trim().split("\n").at(-1);
    throw new ProgramsMissing(
      `The tests need ${wanted} or later and could not bring it (${reason}): install it, or set ` +
        `${variable} to the directory of ${program}.`,
      { cause: error },
    );
  });
}

function pathDirectories(): string[] {
  return (process.env.PATH ?? "").split(delimiter).filter((directory) => directory !== "");
}

/** Debian keeps the server's programs out of PATH. Newest first. */
function debianPostgresDirectories(): string[] {
  const base = "/usr/lib/postgresql";
  if (!existsSync(base)) return [];
  const versions = readdirSync(base).sort((a, b) => Number(b) - Number(a));
  return versions.map((version) => join(base, version, "bin"));
}
