import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FLEET_TOKEN_ENV } from "@tenure/testing/fleet/fleet-token";
import { createHistory, type HistoryRecorder } from "@tenure/testing/history";
import { freePort } from "@tenure/testing/processes/free-port";
import { createHost, type TestHost } from "@tenure/testing/processes/hosts";
import { signal } from "@tenure/testing/processes/proc";
import {
  type ProcessSpec,
  type RunningProcess,
  startProcess,
} from "@tenure/testing/processes/process";
import { startProxy } from "@tenure/testing/processes/proxy";
import { bringFaketime } from "@tenure/testing/programs/bring-faketime";
import {
  createMovableClock,
  findFaketime,
  forRedis,
  type MovableClock,
} from "@tenure/testing/programs/faketime";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type PgBouncerOptions, startPgBouncer } from "@tenure/testing/stores/pgbouncer";
import type { PostgresServer } from "@tenure/testing/stores/postgres";
import { type RedisServer, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { createSmallDisk, type SmallDisk } from "@tenure/testing/stores/small-disk";
import { type Actor, createActor, type Lines } from "./actor.ts";
import { type Build, commandOf, serverDirectoryOf } from "./build.ts";
import { PROGRAMS_FILE } from "./history-of.ts";
import { type Ends, linesTo, type Place, redisEnv, redisUrls, through } from "./lines.ts";
import { programSpec } from "./program-spec.ts";
import { type HotKind, startStores } from "./stores.ts";
import { createVersions, type Versions } from "./versions.ts";
import type { Party, Scene, Workload } from "./workload.ts";

/** Everything a run consists of: private stores, instances, and the programs of the workloads. */
export interface World {
  readonly postgres: PostgresServer;
  /** Where this machine has the means, and the workloads can bear it. */
  readonly postgresClock: MovableClock | undefined;
  /** In runs that asked for it. */
  readonly redisClock: MovableClock | undefined;
  /** Where this machine has the means. */
  readonly postgresDisk: SmallDisk | undefined;
  /** One server, or the nodes of a cluster. */
  readonly redis: RedisServer[];
  readonly hot: HotKind;
  /** Whether two versions run side by side. */
  readonly isMixed: boolean;
  readonly instances: Actor[];
  /** Load programs and other processes of the workloads, by role. */
  readonly parties: Actor[];
  /** Where the histories are. */
  readonly directory: string;
  sceneOf(workload: Workload, name: string): Scene;
  stop(): Promise<void>;
}

/** What a dimension changes about its world. */
export interface WorldExtras {
  /** Settings of every instance, as environment. */
  instanceEnv?: Record<string, string>;
  /** Redis runs with libfaketime, and the clocks of the instances can be moved on every machine. */
  movesRedisClock?: boolean;
  /** PgBouncers between the instances and Postgres, by turns. */
  poolers?: readonly PgBouncerOptions["mode"][];
  /** Each instance and each node-unit is on a host of its own, where this machine has the means. */
  hosts?: boolean;
}

export interface WorldOptions extends WorldExtras {
  workloads: readonly Workload[];
  seed: number;
  hot: HotKind;
  /** The checkout, and the older commit that runs beside it, if any. */
  builds: readonly Build[];
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
  // Instances on hosts of their own have public names, which need tokens.
  ...FLEET_TOKEN_ENV,
  TENURE_NONCE_LEASE_TTL_MS: String(LEASE_TTL_MS),
  TENURE_NONCE_HOLD_TTL_MS: "3600000",
  TENURE_SCHEDULER_PHASE2_ENABLED: "true",
  TENURE_SCHEDULER_PHASE2_PRESENCE_TTL_SECONDS: "6",
  TENURE_SCHEDULER_PHASE2_OWNER_TTL_SECONDS: "8",
  TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: String(PRESENCE_TTL_MS / 1_000),
  TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "1000",
};

export async function createWorld(options: WorldOptions): Promise<World> {
  const { builds, directory } = options;
  mkdirSync(directory, { recursive: true });
  const { movesRedisClock = false } = options;
  const clockOf = createClocks(directory, movesRedisClock ? await bringFaketime() : findFaketime());
  const postgresClock = options.workloads.every((workload) => workload.survivesStoreClock)
    ? clockOf("postgres")
    : undefined;
  const redisClock = movesRedisClock ? clockOf("redis") : undefined;
  const stores = await startStores(options.hot, {
    postgresEnv: postgresClock?.env ?? {},
    redisEnv: redisClock && forRedis(redisClock),
  });
  const { postgres, hot } = stores;
  const poolers = await Promise.all(
    (options.poolers ?? []).map((mode) => startPgBouncer({ postgres, mode })),
  );
  const hosts: TestHost[] = [];
  const hostWith = (links: number): TestHost | undefined => {
    // The nodes of a Cluster announce addresses of this host, which another one cannot reach.
    const host = options.hosts && options.hot === "redis" ? createHost(links) : undefined;
    if (host) hosts.push(host);
    return host;
  };
  const forwarders: RunningProcess[] = [];
  const versions = createVersions(options);
  const history = createHistory(join(directory, PROGRAMS_FILE));
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
  const places: Place[] = [];
  // Names under which instances are asked for; hosts call them by the addresses of their links.
  const origins: Record<string, string> = {};
  const instances: Actor[] = [];
  for (const [index, mode] of modes.entries()) {
    const port = await freePort();
    const host = hostWith(2);
    const [toStores, toOthers] = host?.links ?? [];
    const place = { host: toOthers?.there ?? "127.0.0.1", port };
    // An instance without tokens listens at loopback alone, and its host has a loopback of its own.
    if (host) forwarders.push(startProcess(host.wrap(forwarderSpec(place))));
    const edge = await startProxy({
      targetPort: port,
      targetHost: place.host,
      host: toOthers?.here,
    });
    const url = `http://${edge.host}:${edge.port}`;
    places.push(place);
    urls.push(url);
    const lines: Lines = {
      ...(await linesTo(
        { postgres: poolers[index % poolers.length] ?? postgres, hot, places: [] },
        ["postgres", "redis"],
        toStores?.here,
      )),
      edge: [edge],
    };
    const clock = clockOf(`instance-${index}`);
    const env = {
      ...clock?.env,
      ...COMMON_ENV,
      ...redisEnv(hot, lines),
      POSTGRES_URI: through(postgres, lines),
      TENURE_SERVER_ADVERTISE_URL: url,
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
      TENURE_NONCE_MODE: mode,
      ...options.instanceEnv,
    };
    const args = ["server", "--port", String(port), "--log-level", "warn"];
    instances.push(
      createActor({
        role: "instance",
        history,
        name: `instance-${index}`,
        lines,
        clock,
        host,
        readyLine: /ready at (\S+)/,
        ...versions.of("instance", index),
        spec: (_, build) => on(host, tenureSpec(build, args, { ...env, ...origins })),
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
      ...placesOf(builds[0]!),
      directory,
      presenceTtlMs: PRESENCE_TTL_MS,
      leaseTtlMs: LEASE_TTL_MS,
      settleMs: options.settleMs,
    };
  }

  const parties: Actor[] = [];
  for (const workload of options.workloads)
    parties.push(
      ...(await createParties(workload, {
        ...{ postgres, hot, places, sceneOf, homeAt, versions, history },
        hostOf: ({ home }) => (home ? hostWith(1) : undefined),
      })),
    );
  if (hosts.length > 0)
    origins.TENURE_SERVER_ALLOWED_ORIGINS = [...instances, ...parties]
      .flatMap(({ lines }) => [...(lines.edge ?? []), ...(lines.hosts ?? [])])
      .map(({ host, port }) => `http://${host}:${port}`)
      .join(",");

  return {
    postgres,
    postgresClock,
    redisClock,
    postgresDisk: stores.postgresDisk,
    redis: hot.nodes,
    hot: options.hot,
    isMixed: builds.length > 1,
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
      await Promise.all(forwarders.map((forwarder) => forwarder.kill9()));
      for (const host of hosts) host.discard();
      for (const pooler of poolers) await pooler.discard();
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

const on = (host: TestHost | undefined, spec: ProcessSpec): ProcessSpec =>
  host ? host.wrap(spec) : spec;

/** Takes connections at an address of the host and hands them to the same port of its loopback. */
function forwarderSpec({ host, port }: Place): ProcessSpec {
  const program = `
    const { connect, createServer } = require("node:net");
    createServer({ allowHalfOpen: true }, (from) => {
      const to = connect({ port: ${port}, host: "127.0.0.1", allowHalfOpen: true });
      from.on("error", () => to.destroy());
      to.on("error", () => from.destroy());
      from.pipe(to).pipe(from);
    }).listen(${port}, "${host}");`;
  return { command: process.execPath, args: ["-e", program] };
}

const placesOf = (build: Build) => ({
  buildRoot: build.root,
  serverDirectory: serverDirectoryOf(build),
  programsRoot: build.programs,
});

function createClocks(
  directory: string,
  library: string | undefined,
): (name: string) => MovableClock | undefined {
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
    hostOf,
    versions,
    history,
    ...ends
  }: Ends & {
    hostOf: (party: Party) => TestHost | undefined;
    versions: Versions;
    history: HistoryRecorder;
    sceneOf: (workload: Workload, name: string) => Scene;
    homeAt: (path: string) => SmallDisk | undefined;
  },
): Promise<Actor[]> {
  const load = {
    role: workload.name,
    count: workload.clients,
    uses: workload.uses,
    isNewestOnly: workload.isNewestOnly,
    start: (scene: Scene) => programSpec("load", scene),
    readyLine: /loading/,
  };
  const actors: Actor[] = [];
  const everybody: Party[] = [...(workload.parties ?? []), load];
  for (const party of everybody) {
    for (let index = 0; index < party.count; index++) {
      const name = `${party.role}-${index}`;
      const host = hostOf(party);
      const lines = await linesTo(ends, party.uses, host?.links[0]?.here);
      const scene = sceneOf(workload, name);
      const own: Scene = {
        ...scene,
        urls: lines.hosts?.map(({ host: at, port }) => `http://${at}:${port}`) ?? scene.urls,
        postgresUri: through(ends.postgres, lines),
        redis: { ...scene.redis, urls: redisUrls(ends.hot, lines) },
      };
      actors.push(
        createActor({
          role: party.role,
          history,
          spared: party.spared ?? [],
          awayMaxMs: party.awayMaxMs,
          name,
          lines,
          host,
          disk: party.home && homeAt(party.home(scene)),
          readyLine: party.readyLine,
          ...versions.of(party.role, index, party.isNewestOnly),
          spec: (start, build) =>
            on(
              host,
              party.start({
                ...own,
                ...placesOf(build),
                start,
                historyFile: fileOf(scene, start),
              }),
            ),
        }),
      );
    }
  }
  return actors;
}
