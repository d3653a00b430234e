import { chownSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { createDaemon } from "../processes/daemon.ts";
import { freePort } from "../processes/free-port.ts";
import { unprivilegedUser } from "../processes/run-as.ts";
import { findPgBouncer, type Programs } from "../programs/programs.ts";
import { scratchDirectory } from "../scratch.ts";
import type { PostgresServer } from "./postgres.ts";

export interface PgBouncer {
  readonly port: number;
  readonly programs: Programs;
  /** Of the database "postgres" unless another is named. */
  uri(database?: string): string;
  /** Ends it at once and removes its files. */
  discard(): Promise<void>;
}

export interface PgBouncerOptions {
  postgres: PostgresServer;
  mode: "session" | "transaction";
  /** Lines of the section [pgbouncer], over the ones below. */
  settings?: Record<string, string>;
}

/** A private PgBouncer before a private Postgres, as Debian ships it but for the mode. */
export async function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncer> {
  const { postgres, mode, settings = {} } = options;
  const programs = await findPgBouncer();
  const user = unprivilegedUser();
  const directory = scratchDirectory("pgbouncer");
  if (user) chownSync(directory, user.uid, user.gid);
  const port = await freePort();
  const { username, password } = new URL(postgres.uri());
  const section = {
    listen_addr: "127.0.0.1",
    listen_port: String(port),
    unix_socket_dir: "",
    auth_type: "any",
    pool_mode: mode,
    max_client_conn: "1000",
    default_pool_size: "60",
    // Soon back after the server was away: the default is 15 s.
    server_login_retry: "1",
    ...settings,
  };
  const file = join(directory, "pgbouncer.ini");
  const lines = Object.entries(section).map(([key, value]) => `${key} = ${value}`);
  const target = `* = host=127.0.0.1 port=${postgres.port} user=${username} password=${password}`;
  writeFileSync(file, ["[databases]", target, "[pgbouncer]", ...lines, ""].join("\n"));
  if (user) chownSync(file, user.uid, user.gid);

  const uri = (database?: string) => {
    const own = new URL(postgres.uri(database));
    own.port = String(port);
    return own.href;
  };
  const daemon = createDaemon({
    name: `PgBouncer on port ${port}`,
    command: join(programs.directory, "pgbouncer"),
    args: [file],
    env: { PATH: process.env.PATH ?? "", ...programs.env },
    cwd: directory,
    runAs: user && { uid: user.uid, gid: user.gid },
    logFile: join(directory, "log"),
    endSignal: "SIGKILL",
    isReady: () => answers(uri()),
  });
  await daemon.start();
  return {
    port,
    programs,
    uri,
    async discard() {
      await daemon.end("SIGKILL");
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

async function answers(uri: string): Promise<boolean> {
  const client = new Client({ connectionString: uri, connectionTimeoutMillis: 2_000 });
  client.on("error", () => {});
  try {
    await client.connect();
    await client.query("select 1");
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => {});
  }
}
