import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createMovableClock, findFaketime, type MovableClock } from "../support/faketime.ts";
import { freePort } from "../support/free-port.ts";
import type { PostgresServer } from "../support/postgres.ts";
import { signal } from "../support/proc.ts";
import type { ProcessSpec } from "../support/process.ts";
import { startProxy } from "../support/proxy.ts";
import { type RedisServer, uniqueKeyPrefix } from "../support/redis.ts";
import { scratchDirectory } from "../support/scratch.ts";
import { createSmallDisk, type SmallDisk } from "../support/small-disk.ts";
import { type Actor, createActor, type Lines } from "./actor.ts";
import { type Build, commandOf, serverDirectoryOf } from "./build.ts";
import { type Ends, linesTo, redisEnv, redisUrls, through } from "./lines.ts";
import { programSpec } from "./program-spec.ts";
import { type HotKind, startStores } from "./stores.ts";
import type { Party, Scene, Workload } from "./workload.ts";

/** Everything a run consists of: private stores, instances, and the programs of the workloads. */
export interface World {
  readonly postgres: PostgresServer;
  /** Where this machine has the means, and the workloads can bear it. */
  readonly postgresClock: MovableClock | undefined;
  /** Where this machine has the means. */
  readonly postgresDisk: SmallDisk | undefined;
  /** One server, or the nodes of a cluster. */
  readonly redis: RedisServer[];
  readonly hot: HotKind;
  readonly instances: Actor[];
  /** Load programs and other processes of the workloads, by role. */
  readonly parties: Actor[];
  /** Where the histories are. */
  readonly directory: string;
  sceneOf(workload: Workload, name: string): Scene;
  stop(): Promise<void>;
}

export interface WorldOptions {
  workloads: readonly Workload[];
  seed: number;
  hot: HotKind;
  build: Build;
  instances: number;
  directory: string;
  settleMs: number;
}

// Short, so that a fault of seconds is a loss, and long enough that an idle but busy machine is none.
export const PRESENCE_TTL_MS = 8_000;
export const LEASE_TTL_MS = 3_000;

// Far more than a node-unit of ours writes.
const HOME_MB = 64;

const COMMON_ENV = {
  TENURE_NONCE_LEASE_TTL_MS: String(LEASE_TTL_MS),
  TENURE_NONCE_HOLD_TTL_MS: "3600000",
  TENURE_SCHEDULER_PHASE2_ENABLED: "true",
  TENURE_SCHEDULER_PHASE2_PRESENCE_TTL_SECONDS: "6",
  TENURE_SCHEDULER_PHASE2_OWNER_TTL_SECONDS: "8",
  TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: String(PRESENCE_TTL_MS / 1_000),
  TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "1000",
};

export async function createWorld(options: WorldOptions): Promise<World> {
  const { build, directory } = options;
  mkdirSync(directory, { recursive: true });
  const clockOf = createClocks(directory);
  const postgresClock = options.workloads.every((workload) => workload.survivesStoreClock)
    ? clockOf("postgres")
    : undefined;
  const stores = await startStores(options.hot, {
    postgresEnv: postgresClock?.env ?? {},
  });
  const { postgres, hot } = stores;
  const homes: SmallDisk[] = [];
  const homeAt = (path: string): SmallDisk | undefined => {
    const disk = createSmallDisk(path, HOME_MB);
    if (disk) homes.push(disk);
    return disk;
  };
  const prefix = uniqueKeyPrefix();
  // Both modes of nonces in one fleet, on any two instances at least.
  const modes = Array.from({ length: options.instances }, (_, index) =>
    index % 2 === 0 ? "worker_queue" : "basic",
  );
  const urls: string[] = [];
  const ports: number[] = [];
  const instances: Actor[] = [];
  for (const [index, mode] of modes.entries()) {
    const port = await freePort();
    const edge = await startProxy({ targetPort: port });
    const url = `http://127.0.0.1:${edge.port}`;
    ports.push(port);
    urls.push(url);
    const lines: Lines = { ...(await linesTo({ postgres, hot, ports: [] })), edge: [edge] };
    const clock = clockOf(`instance-${index}`);
    const env = {
      ...clock?.env,
      ...COMMON_ENV,
      ...redisEnv(hot, lines),
      POSTGRES_URI: through(postgres, lines),
      TENURE_SERVER_ADVERTISE_URL: url,
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
      TENURE_NONCE_MODE: mode,
    };
    const args = ["server", "--port", String(port), "--log-level", "warn"];
    instances.push(
      createActor({
        role: "instance",
        name: `instance-${index}`,
        lines,
        clock,
        readyLine: /ready at (\S+)/,
        spec: () => tenureSpec(build, args, env),
      }),
    );
  }

  function sceneOf(workload: Workload, name: string): Scene {
    return {
      workload: workload.name,
      name,
      start: 0,
      seed: options.seed,
      historyFile: join(directory, `${workload.name}.${name}.jsonl`),
      urls,
      nonceModes: modes,
      postgresUri: postgres.uri(),
      redis: {
        mode: options.hot === "redis" ? "single" : "cluster",
        urls: hot.nodes.map(({ url }) => url),
        prefix,
      },
      buildRoot: build.root,
      serverDirectory: serverDirectoryOf(build),
      directory,
      presenceTtlMs: PRESENCE_TTL_MS,
      leaseTtlMs: LEASE_TTL_MS,
      settleMs: options.settleMs,
    };
  }

  const parties: Actor[] = [];
  for (const workload of options.workloads)
    parties.push(...(await createParties(workload, { postgres, hot, ports, sceneOf, homeAt })));

  return {
    postgres,
    postgresClock,
    postgresDisk: stores.postgresDisk,
    redis: hot.nodes,
    hot: options.hot,
    instances,
    parties,
    directory,
    sceneOf,
    async stop() {
      const actors = [...instances, ...parties].filter((actor) => actor.starts > 0);
      // What the last process of each said, for whoever has to find out why.
      for (const { name, process: last } of actors)
        writeFileSync(join(directory, `${name}.log`), `${last.stdout()}\n${last.stderr()}\n`);
      await Promise.all(actors.map((actor) => actor.kill()));
      endChildrenIn(directory);
      for (const { lines } of [...instances, ...parties])
        for (const proxy of Object.values(lines).flat()) proxy.stop();
      await stores.stop();
      for (const home of homes) home.discard();
    },
  };
}

/** A node-unit whose guard was taken out on purpose leaves its children behind. They have the directory in their call. */
function endChildrenIn(directory: string): void {
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    const pid = Number(name);
    const call = callOf(pid);
    if (call.includes("/faults/children/child.js") && call.includes(directory))
      signal(pid, "SIGKILL");
  }
}

function callOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return ""; // gone meanwhile
  }
}

function createClocks(directory: string): (name: string) => MovableClock | undefined {
  const library = findFaketime();
  if (library === undefined) return () => undefined;
  return (name) => createMovableClock(library, join(directory, `clock-${name}`));
}

export function tenureSpec(build: Build, args: string[], env: Record<string, string>): ProcessSpec {
  const dataDir = scratchDirectory("data");
  return {
    command: process.execPath,
    args: [commandOf(build), ...args, "--data-dir", dataDir],
    env,
    cwd: dataDir,
  };
}

/** One per start: what a killed process was writing is then the end of a file. */
const fileOf = ({ historyFile }: Scene, start: number): string =>
  historyFile.replace(/\.jsonl$/, `.${start}.jsonl`);

async function createParties(
  workload: Workload,
  {
    sceneOf,
    homeAt,
    ...ends
  }: Ends & {
    sceneOf: (workload: Workload, name: string) => Scene;
    homeAt: (path: string) => SmallDisk | undefined;
  },
): Promise<Actor[]> {
  const load = {
    role: workload.name,
    count: workload.clients,
    uses: workload.uses,
    start: (scene: Scene) => programSpec("load", scene),
    readyLine: /loading/,
  };
  const actors: Actor[] = [];
  const everybody: Party[] = [...(workload.parties ?? []), load];
  for (const party of everybody) {
    for (let index = 0; index < party.count; index++) {
      const name = `${party.role}-${index}`;
      const lines = await linesTo(ends, party.uses);
      const scene = sceneOf(workload, name);
      const own: Scene = {
        ...scene,
        urls: lines.hosts?.map(({ port }) => `http://127.0.0.1:${port}`) ?? scene.urls,
        postgresUri: through(ends.postgres, lines),
        redis: { ...scene.redis, urls: redisUrls(ends.hot, lines) },
      };
      actors.push(
        createActor({
          role: party.role,
          spared: party.spared ?? [],
          awayMaxMs: party.awayMaxMs,
          name,
          lines,
          disk: party.home && homeAt(party.home(scene)),
          readyLine: party.readyLine,
          spec: (start) => party.start({ ...own, start, historyFile: fileOf(scene, start) }),
        }),
      );
    }
  }
  return actors;
}
