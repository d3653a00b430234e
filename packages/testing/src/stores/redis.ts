import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createDaemon } from "../processes/daemon.ts";
import { freePort } from "../processes/free-port.ts";
import { findRedis, type Programs } from "../programs/programs.ts";
import { scratchDirectory } from "../scratch.ts";
import { askRedis } from "./redis-ask.ts";

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly programs: Programs;
  /** Ends in good order and keeps the append-only file. */
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Again, on the same port and data. */
  start(): Promise<void>;
  /** What an operator calls the loss of Redis: the same address, and nothing in it. */
  restartEmpty(): Promise<void>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Ends it at once and removes its data. */
  discard(): Promise<void>;
}

export interface RedisOptions {
  /** Lines of redis.conf, written as they are, over the ones below. */
  conf?: Record<string, string>;
  env?: Record<string, string>;
}

/** A private Redis on a free loopback port, with its data in a temporary directory. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const programs = await findRedis();
  const directory = scratchDirectory("redis");
  const data = join(directory, "data");
  const port = await freePort();
  const conf = { ...defaultConf, ...options.conf, port: String(port), dir: data };
  writeFileSync(join(directory, "redis.conf"), render(conf));
  mkdirSync(data);

  const daemon = createDaemon({
    name: `Redis on port ${port}`,
    command: join(programs.directory, "redis-server"),
    args: [join(directory, "redis.conf")],
    env: { PATH: process.env.PATH ?? "", ...programs.env, ...options.env },
    cwd: directory,
    logFile: join(directory, "log"),
    endSignal: "SIGKILL",
    isReady: async () => (await askRedis(port, "PING")) === "+PONG",
  });
  await daemon.start();

  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    programs,
    get pid() {
      return daemon.pid;
    },
    stop: () => daemon.end("SIGTERM"),
    kill: () => daemon.end("SIGKILL"),
    start: daemon.start,
    async restartEmpty() {
      await daemon.end("SIGKILL");
      rmSync(data, { recursive: true });
      mkdirSync(data);
      await daemon.start();
    },
    freeze: daemon.freeze,
    thaw: daemon.thaw,
    async discard() {
      await daemon.end("SIGKILL");
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Each test file works under a prefix of its own, so that files may share one Redis. */
export function uniqueKeyPrefix(): string {
  return `t${randomBytes(6).toString("hex")}`;
}

const defaultConf = {
  bind: "127.0.0.1",
  appendonly: "yes",
  save: '""',
  "maxmemory-policy": "noeviction",
};

function render(conf: Record<string, string>): string {
  return Object.entries(conf)
    .map(([key, value]) => `${key} ${value}\n`)
    .join("");
}
