import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { appendFileSync, chownSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client } from "pg";
import { createDaemon } from "../processes/daemon.ts";
import { freePort } from "../processes/free-port.ts";
import { unprivilegedUser } from "../processes/run-as.ts";
import { findPostgres, type Programs } from "../programs/programs.ts";
import { scratchDirectory } from "../scratch.ts";

export interface PostgresServer {
  readonly host: string;
  readonly port: number;
  readonly pid: number;
  readonly programs: Programs;
  /** Of the superuser; the database "postgres" unless another is named. */
  uri(database?: string): string;
  /** Ends in good order and keeps the data. */
  stop(): Promise<void>;
  /** `immediate` is a crash: no checkpoint, recovery at the next start. Waits for the exit. */
  kill(mode: "immediate" | "fast"): Promise<void>;
  /** Again, on the same port and data. */
  start(): Promise<void>;
  /** Waits until it answers; starts it again if it has given up of itself. */
  revive(): Promise<void>;
  /** Stops the clock for the postmaster and all its children; connections stay open and silent. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Ends it at once and removes its data. */
  discard(): Promise<void>;
}

export interface PostgresOptions {
  /** Lines of postgresql.conf, over the ones below. */
  settings?: Record<string, string>;
  env?: Record<string, string>;
  /** Where its files go; a temporary directory if not said. */
  directory?: string | undefined;
}

/** A private Postgres on a free loopback port, with its data in a temporary directory. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const programs = await findPostgres();
  const user = unprivilegedUser();
  const runAs = user && { uid: user.uid, gid: user.gid };
  const directory = options.directory ?? scratchDirectory("postgres");
  if (runAs) chownSync(directory, runAs.uid, runAs.gid);
  const data = join(directory, "data");
  const password = randomBytes(12).toString("hex");
  const env = { PATH: process.env.PATH ?? "", LC_ALL: "C", ...programs.env, ...options.env };

  const port = await freePort();
  await initialise({
    programs,
    directory,
    data,
    password,
    spawn: { env, cwd: directory, ...runAs },
  });
  const settings = { ...defaultSettings, port: String(port), ...options.settings };
  appendFileSync(join(data, "postgresql.conf"), render(settings));

  const uri = (database = "postgres") =>
    `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const daemon = createDaemon({
    name: `Postgres on port ${port}`,
    command: join(programs.directory, "postgres"),
    args: ["-D", data],
    env,
    cwd: directory,
    runAs,
    logFile: join(directory, "log"),
    endSignal: "SIGQUIT",
    isReady: () => answers(uri()),
  });
  await daemon.start();

  return {
    host: "127.0.0.1",
    port,
    programs,
    uri,
    get pid() {
      return daemon.pid;
    },
    stop: () => daemon.end("SIGINT"),
    kill: (mode) => daemon.end(mode === "immediate" ? "SIGQUIT" : "SIGINT"),
    start: daemon.start,
    revive: daemon.revive,
    freeze: daemon.freeze,
    thaw: daemon.thaw,
    async discard() {
      await daemon.end("SIGQUIT");
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

// fsync and synchronous_commit keep their default, on: the server refuses a database without them,
// and what a test sees after a crash must be what an operator would see.
const defaultSettings = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  max_connections: "300",
  shared_buffers: "64MB",
};

async function initialise(cluster: {
  programs: Programs;
  directory: string;
  data: string;
  password: string;
  spawn: { env: Record<string, string>; cwd: string; uid?: number; gid?: number };
}): Promise<void> {
  const passwordFile = join(cluster.directory, "password");
  writeFileSync(passwordFile, cluster.password, { mode: 0o600 });
  const { uid, gid } = cluster.spawn;
  if (uid !== undefined && gid !== undefined) chownSync(passwordFile, uid, gid);
  await promisify(execFile)(
    join(cluster.programs.directory, "initdb"),
    [
      ["-D", cluster.data, "-U", "postgres", "--encoding=UTF8", "--locale=C"],
      // A password, since every user of this machine can reach the port; in clear text, since
      // nothing but loopback carries it and SCRAM takes milliseconds at each connect.
      ["--auth=password", `--pwfile=${passwordFile}`],
      ["--no-sync", "--no-instructions"],
    ].flat(),
    cluster.spawn,
  );
}

function render(settings: Record<string, string>): string {
  const lines = Object.entries(settings).map(([key, value]) => `${key} = '${value}'\n`);
  return `\n${lines.join("")}`;
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
