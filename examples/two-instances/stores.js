// A Redis and a Postgres for the time of one run.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

const ANSWERS_WITHIN_MS = 30_000;

/** The settings for both instances, and a function that stops the stores. */
export async function openStores() {
  const directory = mkdtempSync(join(tmpdir(), "two-instances-"));
  /** @type {(() => Promise<void>)[]} */
  const ends = [async () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 })];
  const stop = async () => {
    for (const end of ends) await end();
  };
  try {
    const redis = process.env.REDIS_URL ?? (await startRedis(directory, ends));
    const postgres = process.env.POSTGRES_URI ?? (await startPostgres(directory, ends));
    const env = {
      TENURE_SCHEDULER_PHASE2_REDIS_URL: redis,
      TENURE_SERVER_POSTGRES_URI: postgres,
      TENURE_SERVER_DATA_DIR: directory,
    };
    return { env, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** @param {string} directory @param {(() => Promise<void>)[]} ends */
async function startRedis(directory, ends) {
  const program = find("redis-server", pathDirectories());
  if (!program)
    throw new Error("Two instances meet in Redis: install redis-server, or set REDIS_URL.");
  const port = await freePort();
  const settings = { port, bind: "127.0.0.1", dir: directory, save: "", appendonly: "yes" };
  const policy = ["--maxmemory-policy", "noeviction"];
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const isReady = () => answers(port, { greeting: Buffer.from("PING\r\n"), answer: "+" });
  await run({ program, args: [...args, ...policy], ends, isReady });
  return `redis://127.0.0.1:${port}`;
}

/** @param {string} directory @param {(() => Promise<void>)[]} ends */
async function startPostgres(directory, ends) {
  const directories = [...pathDirectories(), ...debianDirectories()];
  const initdb = find("initdb", directories);
  const program = find("postgres", directories);
  if (!initdb || !program)
    throw new Error("Two instances share one Postgres: install postgresql, or set POSTGRES_URI.");
  const data = join(directory, "postgres");
  mkdirSync(data, { mode: 0o700 });
  const runAs = otherThanRoot();
  if (runAs) for (const path of [directory, data]) chownSync(path, runAs.uid, runAs.gid);
  execFileSync(initdb, ["-D", data, "-U", "tenure", "--auth=trust", "--encoding=UTF8"], {
    stdio: "ignore",
    ...runAs,
  });
  const port = await freePort();
  const args = ["-D", data, "-p", String(port), "-h", "127.0.0.1", "-k", ""];
  const isReady = () => answers(port, { greeting: POSTGRES_STARTUP, answer: "R" });
  await run({ program, args, ends, isReady, runAs, endSignal: "SIGINT" });
  return `postgres://tenure@127.0.0.1:${port}/postgres`;
}

/**
 * @param {object} options
 * @param {string} options.program
 * @param {string[]} options.args
 * @param {() => Promise<boolean>} options.isReady
 * @param {(() => Promise<void>)[]} options.ends
 * @param {{ uid: number, gid: number } | undefined} [options.runAs]
 * @param {NodeJS.Signals} [options.endSignal]
 */
async function run({ program, args, isReady, ends, runAs, endSignal = "SIGTERM" }) {
  const child = spawn(program, args, { stdio: "ignore", cwd: tmpdir(), ...runAs });
  const exited = once(child, "exit").catch(() => {});
  ends.unshift(async () => {
    child.kill(endSignal);
    await exited;
  });
  const giveUpAtMs = performance.now() + ANSWERS_WITHIN_MS;
  while (!(await isReady())) {
    if (child.exitCode !== null || performance.now() > giveUpAtMs)
      throw new Error(`${program} did not start`);
    await wait(100);
  }
}

// Version 3.0, user "tenure". A server that still starts takes the connection and answers E; one that is ready, R.
const POSTGRES_STARTUP = Buffer.from("\0\0\0\x15\0\x03\0\0user\0tenure\0\0", "latin1");

/**
 * @param {number} port
 * @param {{ greeting: Buffer, answer: string }} words The first letter of the answer is enough.
 * @returns {Promise<boolean>}
 */
function answers(port, { greeting, answer }) {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: "127.0.0.1" });
    socket.once("connect", () => socket.write(greeting));
    socket.once("data", (bytes) => {
      resolve(bytes.toString("latin1").startsWith(answer));
      socket.destroy();
    });
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
  });
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}

/** @param {string} name @param {string[]} directories */
function find(name, directories) {
  return directories.map((directory) => join(directory, name)).find((path) => existsSync(path));
}

const pathDirectories = () => (process.env.PATH ?? "").split(delimiter);

/** Debian does not have initdb in the path. */
function debianDirectories() {
  const root = "/usr/lib/postgresql";
  return existsSync(root) ? readdirSync(root).map((version) => join(root, version, "bin")) : [];
}

/** Postgres refuses to run as root. */
function otherThanRoot() {
  if (userInfo().uid !== 0) return undefined;
  const id = (/** @type {string} */ flag, /** @type {string} */ user) =>
    Number(execFileSync("id", [flag, user], { stdio: ["ignore", "pipe", "ignore"] }));
  for (const user of ["postgres", "nobody"]) {
    try {
      return { uid: id("-u", user), gid: id("-g", user) };
    } catch {
      // not on this machine
    }
  }
  return undefined;
}
