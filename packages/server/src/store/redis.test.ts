import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { TenureError } from "@tenure/protocol";
import { freePort } from "@tenure/testing/processes/free-port";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { scratchDirectory } from "@tenure/testing/scratch";
import { startRedis, uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Cluster, Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import * as z from "zod";
import { redisSettings } from "../../testing/hot-stores.ts";
import { openRedis, type RedisSettings, type RedisStore, waitUntilReady } from "./redis.ts";
import { defineScript } from "./script.ts";

const KINDS = ["redis", "redis-cluster"] as const;
type Kind = (typeof KINDS)[number];

/** Counts its own runs: the one thing that running twice must not do. */
const countRun = defineScript({
  file: luaFile("count-run", "redis.call('INCR', counter)\nreturn { 'counted' }\n"),
  keys: ["counter"],
  args: z.object({}),
  reply: z.tuple([z.literal("counted")]),
}).inMemory(() => ["counted"]);

describe.each(KINDS)("%s over a network", (kind) => {
  test("a script whose reply is lost ran once, and its caller knows that he does not know", async () => {
    const { store, proxies } = await openThroughProxies(kind);
    const counter = `${store.prefix}:counter`;
    await store.run(countRun, { counter }, {});
    const cut = firstOf(proxies, (proxy) => proxy.cutAfter(mentions(counter)));
    await expectDown(store.run(countRun, { counter }, {}));
    await cut;
    // Whatever the client has kept to send again, it has sent before it sends a later command.
    const runs = await until(() => store.client.get(counter), { what: "the same server again" });
    expect(runs).toBe("2");
  });

  test("the same client with the library's own settings runs it twice: the check above can fail", async () => {
    const proxies = await startProxies(kind);
    const client = clientOfDefaults(kind, proxies);
    client.on("error", () => {});
    onTestFinished(() => client.disconnect());
    // A cluster's client may also run out of redirections while it reconnects, and give up.
    const runsTwice = async () => {
      const counter = `${uniqueKeyPrefix()}:counter`;
      const cut = firstOf(proxies, (proxy) => proxy.cutAfter(mentions(counter)));
      await client.incr(counter).catch(() => {});
      await cut;
      return (await client.get(counter)) === "2";
    };
    await until(runsTwice, { deadlineMs: 60_000, what: "a command that is sent again" });
  });

  test("a subscription survives the loss of every connection", async () => {
    const { store, proxies } = await openThroughProxies(kind);
    const channel = `${store.prefix}:wake`;
    const heard: string[] = [];
    await store.subscribe(channel, (message) => heard.push(message));
    await hearing(store, { channel, heard, message: "before" });
    for (const proxy of proxies) proxy.reset();
    await hearing(store, { channel, heard, message: "after" });
  });

  test("connections that went silent are replaced within seconds, the subscription too", async () => {
    const { store, proxies } = await openThroughProxies(kind, { commandTimeoutMs: 500 });
    const channel = `${store.prefix}:wake`;
    const heard: string[] = [];
    await store.subscribe(channel, (message) => heard.push(message));
    await hearing(store, { channel, heard, message: "before" });
    await store.ping();
    for (const proxy of proxies) proxy.forget();
    const cutMs = performance.now();
    await answersAgain(store);
    // The limit of one command, a second, and time to connect.
    expect(performance.now() - cutMs).toBeLessThan(10_000);
    await hearing(store, { channel, heard, message: "after" });
    expect(performance.now() - cutMs).toBeLessThan(20_000);
  });

  test("a connection that blocks delays nobody else", async () => {
    const store = await openReady(redisSettings(kind));
    const blocked = store.blockingConnection();
    const order: string[] = [];
    const key = `${store.prefix}:{inbox}`;
    await untilReady(blocked);
    const reading = blocked.blpop(key, 30).then((found) => order.push(`read ${found?.[1]}`));
    for (let ping = 0; ping < 20; ping++) await store.ping();
    order.push("pinged");
    await store.client.rpush(key, "letter");
    await reading;
    expect(order).toEqual(["pinged", "read letter"]);
  });

  test("a script that the server forgot is sent again whole", async () => {
    const store = await openReady(redisSettings(kind));
    const counter = `${store.prefix}:counter`;
    await store.run(countRun, { counter }, {});
    const servers = store.client instanceof Cluster ? store.client.nodes("master") : [store.client];
    await Promise.all(servers.map((server) => server.script("FLUSH")));
    await store.run(countRun, { counter }, {});
    expect(await store.client.get(counter)).toBe("2");
  });

  test("nobody there is one clear sentence in time", async () => {
    const urls = [`redis://127.0.0.1:${await freePort()}`];
    const store = openRedis({ ...redisSettings(kind), urls, prefix: "nobody" });
    onTestFinished(() => store.close());
    const sentence =
      kind === "redis" ? /^redis is down \(connect ECONNREFUSED/ : /no node of the cluster answers/;
    // Half a second may be over before a slow machine has tried to connect.
    const said = async () => {
      await expect(waitUntilReady(store, 500)).rejects.toThrow(sentence);
      return true;
    };
    await until(said, { what: `${sentence}` });
  });
});

describe("scripts that are started in one turn", () => {
  const fail = defineScript({
    file: luaFile("fail", "redis.call('INCR', counter)\nreturn redis.call('LLEN', counter)\n"),
    keys: ["counter"],
    args: z.object({}),
    reply: z.tuple([z.literal("never")]),
  }).inMemory(() => ["never"]);
  const read = defineScript({
    file: luaFile(
      "read",
      "return { redis.call('GET', counter), args.asked_by, now_ms(), text }\n",
      ["text"],
    ),
    keys: ["counter"],
    texts: ["text"],
    args: z.object({ asked_by: z.string(), text: z.string() }),
    reply: z.tuple([z.string(), z.string(), z.int(), z.string()]),
  }).inMemory(() => ["", "", 0, ""]);

  test("take one command, keep their order, and each has its own answer", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url] });
    const counter = "c";
    const all = () => [
      store.run(countRun, { counter }, {}),
      store.run(read, { counter }, { asked_by: "first", text: "é\r\n" }),
      store.run(fail, { counter }, {}).catch((error: Error) => error.message),
      store.run(countRun, { counter }, {}),
      store.run(read, { counter }, { asked_by: "last", text: "" }),
    ];
    await Promise.all(all());
    await store.client.set(counter, "0");
    await store.client.config("RESETSTAT");
    const [, first, failed, , last] = await Promise.all(all());
    expect(first).toEqual(["1", "first", expect.any(Number), "é\r\n"]);
    expect(failed).toMatch(/^WRONGTYPE/);
    expect(last).toEqual(["3", "last", (first as unknown[])[2], ""]);
    expect(await store.client.info("commandstats")).toMatch(/cmdstat_evalsha:calls=1,/);
  });

  test("are sent again whole by a server that forgot them, and run once", async () => {
    const store = await openReady(redisSettings("redis"));
    const counter = `${store.prefix}:counter`;
    const twice = () => [1, 2].map(() => store.run(countRun, { counter }, {}));
    await Promise.all(twice());
    await (store.client as Redis).script("FLUSH");
    await Promise.all(twice());
    expect(await store.client.get(counter)).toBe("4");
  });

  test("all fail when nobody answers", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url], commandTimeoutMs: 200 });
    await redis.freeze();
    await Promise.all([1, 2, 3].map(() => expectDown(store.run(countRun, { counter: "c" }, {}))));
    await redis.thaw();
  });

  test("for want of memory are told so one by one", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url] });
    await store.client.config("SET", "maxmemory", "1mb");
    const runs = [1, 2].map(() => store.run(countRun, { counter: "c" }, {}));
    await Promise.all(runs.map((run) => expectDown(run, /OOM/)));
  });
});

describe("a Redis that is frozen", () => {
  test("is given up after the time limit; thawed, it answers each question with its own answer", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url], commandTimeoutMs: 200 });
    await redis.freeze();
    const askedMs = performance.now();
    await expectDown(store.run(countRun, { counter: "c" }, {}));
    await expectDown(store.ping());
    expect(performance.now() - askedMs).toBeLessThan(10_000);
    await redis.thaw();
    await answersAgain(store);
    const { client } = store;
    const answers = async () => [
      await client.set("b", "2"),
      await client.get("b"),
      await client.get("none"),
    ];
    expect(await until(answers, { what: "three answers in time" })).toEqual(["OK", "2", null]);
  });
});

describe("a reader that blocks", () => {
  test("on a server that froze gives up when its time is over, and reads on when it thaws", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const urls = [redis.url];
    const store = await openReady({ mode: "single", urls, commandTimeoutMs: 2_000 });
    const reader = store.blockingConnection(100);
    await untilReady(reader);
    await redis.freeze();
    await expect(reader.blpop("inbox", 0.1)).rejects.toThrow();
    await redis.thaw();
    // An empty answer of its own: by then the one that was given up has had its turn.
    const isEmpty = async () => (await reader.blpop("inbox", 0.1)) === null;
    await until(isEmpty, { what: "the connection to answer" });
    await store.client.rpush("inbox", "letter");
    const letter = await reader.blpop("inbox", 0.1);
    expect(letter).toEqual(["inbox", "letter"]);
  });
});

describe("a Redis that is gone", () => {
  test("fails commands at once instead of keeping them, and is used when it is back", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    // Whatever were kept would be kept for this long.
    const commandTimeoutMs = 60_000;
    const store = await openReady({ mode: "single", urls: [redis.url], commandTimeoutMs });
    await redis.stop();
    await until(() => store.client.status !== "ready", { what: "the client to notice" });
    const askedMs = performance.now();
    await expectDown(store.ping());
    expect(performance.now() - askedMs).toBeLessThan(10_000);
    await redis.start();
    await answersAgain(store);
  });
});

describe("a Redis Cluster of which one master is gone", () => {
  test("is not well, though the others answer", async () => {
    // The other masters need this long to agree that one is gone.
    const cluster = await startRedisCluster({ conf: { "cluster-node-timeout": "2000" } });
    onTestFinished(() => cluster.stop());
    const store = await openReady({ mode: "cluster", urls: cluster.urls });
    await answersAgain(store);
    await cluster.nodes[1]!.kill();
    const told = async () =>
      store.ping().then(
        () => false,
        (error: unknown) => error instanceof TenureError,
      );
    await until(told, { what: "the loss to be noticed" });
    for (let ping = 0; ping < 10; ping++) await expectDown(store.ping());
    await cluster.nodes[1]!.start();
    await answersAgain(store);
  });
});

describe("what Redis itself refuses", () => {
  test("for want of memory is DEPENDENCY_DOWN: later it may have room", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url] });
    await store.client.config("SET", "maxmemory", "1mb");
    await expectDown(store.run(countRun, { counter: "c" }, {}), /OOM/);
  });

  test("for want of rights is DEPENDENCY_DOWN: an operator may grant them", async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.discard());
    const store = await openReady({ mode: "single", urls: [redis.url] });
    await store.client.call("ACL", "SETUSER", "default", "-evalsha", "-eval");
    await expectDown(store.run(countRun, { counter: "c" }, {}), /NOPERM/);
  });

  test("as a mistake of ours stays an error: trying again would not help", async () => {
    const store = await openReady(redisSettings("redis"));
    const counter = `${store.prefix}:list`;
    await store.client.rpush(counter, "x");
    const mistaken = store.run(countRun, { counter }, {});
    await expect(mistaken).rejects.toThrow(/WRONGTYPE/);
    await expect(mistaken).rejects.not.toBeInstanceOf(TenureError);
  });

  test("is counted by script, with what went well", async () => {
    const ops: string[] = [];
    const store = await openReady({
      ...redisSettings("redis"),
      onOp: (op, result) => ops.push(`${op} ${result}`),
    });
    await store.run(countRun, { counter: `${store.prefix}:n` }, {});
    await store.client.rpush(`${store.prefix}:list`, "x");
    await store.run(countRun, { counter: `${store.prefix}:list` }, {}).catch(() => {});
    expect(ops).toEqual(["count-run ok", "count-run error"]);
  });
});

async function openReady(
  settings: Pick<RedisSettings, "mode" | "urls"> & Partial<RedisSettings>,
): Promise<RedisStore> {
  const store = openRedis({ prefix: uniqueKeyPrefix(), ...settings });
  onTestFinished(() => store.close());
  await waitUntilReady(store, 10_000);
  return store;
}

/** One proxy per server; the cluster's client is told that the servers are where the proxies are. */
async function openThroughProxies(
  kind: Kind,
  settings: Partial<RedisSettings> = {},
): Promise<{ store: RedisStore; proxies: FaultProxy[] }> {
  const proxies = await startProxies(kind);
  const { mode } = redisSettings(kind);
  const store = await openReady({
    mode,
    urls: proxies.map(urlOf),
    natMap: natMapOf(kind, proxies),
    ...settings,
  });
  return { store, proxies };
}

async function startProxies(kind: Kind): Promise<FaultProxy[]> {
  const proxies = await Promise.all(portsOf(kind).map((targetPort) => startProxy({ targetPort })));
  onTestFinished(() => {
    for (const proxy of proxies) proxy.stop();
  });
  return proxies;
}

const portsOf = (kind: Kind): number[] =>
  redisSettings(kind).urls.map((url) => Number(new URL(url).port));
const urlOf = ({ port }: FaultProxy): string => `redis://127.0.0.1:${port}`;

function natMapOf(kind: Kind, proxies: FaultProxy[]) {
  const pairs = portsOf(kind).map((port, index): [string, { host: string; port: number }] => [
    `127.0.0.1:${port}`,
    { host: "127.0.0.1", port: proxies[index]!.port },
  ]);
  return Object.fromEntries(pairs);
}

function clientOfDefaults(kind: Kind, proxies: FaultProxy[]): Redis | Cluster {
  if (kind === "redis") return new Redis(urlOf(proxies[0]!));
  return new Cluster(proxies.map(urlOf), { natMap: natMapOf(kind, proxies) });
}

async function expectDown(call: Promise<unknown>, reason = /./): Promise<void> {
  const error = await call.then(
    () => new Error("it succeeded"),
    (refused: unknown) => refused,
  );
  expect(error).toBeInstanceOf(TenureError);
  expect(error).toMatchObject({
    code: "DEPENDENCY_DOWN",
    details: { dependency: "redis", reason: expect.stringMatching(reason) },
  });
}

const mentions = (text: string) => (bytes: Buffer) => bytes.includes(text);

const firstOf = (proxies: FaultProxy[], arm: (proxy: FaultProxy) => Promise<void>) =>
  Promise.race(proxies.map(arm));

async function answersAgain(store: RedisStore): Promise<void> {
  const answers = async () => store.ping().then(() => true);
  await until(answers, { deadlineMs: 60_000, what: "an answer" });
}

async function hearing(
  store: RedisStore,
  { channel, heard, message }: { channel: string; heard: string[]; message: string },
): Promise<void> {
  const hears = async () => {
    await store.publish(channel, message);
    return heard.includes(message);
  };
  await until(hears, { deadlineMs: 60_000, what: `to hear ${message}` });
}

async function untilReady(client: Redis | Cluster): Promise<void> {
  await until(() => client.status === "ready", { what: "the connection" });
}

/** The body stands under the names of its keys, as every script of ours must. */
function luaFile(name: string, body: string, texts: string[] = []): URL {
  const path = join(scratchDirectory("lua"), `${name}.lua`);
  const unpack = texts.map((text, index) => `local ${text} = ARGV[${index + 2}]\n`).join("");
  writeFileSync(path, `local counter = KEYS[1]\n${unpack}${body}`);
  return pathToFileURL(path);
}
