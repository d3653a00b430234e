import { chmodSync, chownSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TLSSocket } from "node:tls";
import { CLIENT, createTestCa, replaceFile, type TestCa } from "@tenure/testing/certificates";
import { freePort } from "@tenure/testing/processes/free-port";
import { unprivilegedUser } from "@tenure/testing/processes/run-as";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { type RedisServer, startRedis } from "@tenure/testing/stores/redis";
import { askRedis } from "@tenure/testing/stores/redis-ask";
import { startRedisCluster } from "@tenure/testing/stores/redis-cluster";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { PemFiles } from "../kernel/pem-files.ts";
import { claimOwner } from "../membership/store/owner-store.ts";
import { isPooled } from "./pooler.ts";
import { openPostgres } from "./postgres.ts";
import { withExplicitSslMode } from "./postgres-uri.ts";
import { openRedis, type RedisSettings, type RedisStore, waitUntilReady } from "./redis.ts";
import { sql } from "./sql.ts";

const file = (path: string) => ({ name: "test", path });

describe("Redis over TLS", () => {
  const ca = createTestCa("Redis CA");
  const server = ca.files("redis");
  const byName = ca.files("redis-by-name", { hosts: ["localhost"] });
  const client = ca.files("redis-client", CLIENT);

  const tlsConf = (port: number) => ({
    "tls-port": String(port),
    "tls-cert-file": server.certFile,
    "tls-key-file": server.keyFile,
    "tls-ca-cert-file": ca.caFile,
  });
  const trusting = (trusted: TestCa, pair?: { certFile: string; keyFile: string }) =>
    new PemFiles({
      ca: file(trusted.caFile),
      ...(pair && { cert: file(pair.certFile), key: file(pair.keyFile) }),
    });

  function open(settings: Partial<RedisSettings> & Pick<RedisSettings, "urls">): RedisStore {
    const store = openRedis({ mode: "single", prefix: "tls", ...settings });
    onTestFinished(() => store.close());
    return store;
  }

  const claim = (store: RedisStore, key: string) =>
    claimOwner(store, { key, owner: { instanceId: "i", epoch: 1 }, ttlMs: 60_000 });

  describe("on one server, which requires client certificates", () => {
    let redis: RedisServer;
    let url: string;
    beforeAll(async () => {
      const port = await freePort();
      const pair = { "tls-cert-file": byName.certFile, "tls-key-file": byName.keyFile };
      redis = await startRedis({ conf: { ...tlsConf(port), ...pair } });
      url = `rediss://localhost:${port}`;
    });
    afterAll(() => redis?.discard());

    test("with the CA and a client certificate", async () => {
      const store = open({ urls: [url], tls: trusting(ca, client) });
      await waitUntilReady(store, 10_000);
      await claim(store, "tls:{a}");
      await store.ping();
      const heard = new Promise((resolve) => void store.subscribe("tls:channel", resolve));
      await until(
        async () => {
          await store.publish("tls:channel", "hello");
          return Promise.race([heard, new Promise((r) => setTimeout(r, 100))]);
        },
        { what: "a message over Pub/Sub" },
      );
    });

    test("not with another CA, nor with the CAs that Node trusts", async () => {
      for (const tls of [trusting(createTestCa("Another CA"), client), undefined]) {
        const store = open({ urls: [url], tls });
        await expect(waitUntilReady(store, 2_000)).rejects.toThrow(/not signed by a trusted CA/);
      }
    });

    test("not without a client certificate", async () => {
      const store = open({ urls: [url], tls: trusting(ca) });
      await expect(waitUntilReady(store, 2_000)).rejects.toThrow(/DEPENDENCY_DOWN|redis/i);
    });

    test("not by an address that its certificate does not have", async () => {
      const address = url.replace("localhost", "127.0.0.1");
      const store = open({ urls: [address], tls: trusting(ca, client) });
      await expect(waitUntilReady(store, 2_000)).rejects.toThrow(/does not match certificate/);
    });

    test("a client certificate that is renewed is used by the next connection", async () => {
      const other = createTestCa("Not yet known");
      const pair = other.files("renewed", CLIENT);
      const renewed = ca.issue(CLIENT);
      const tls = trusting(ca, pair);
      const store = open({ urls: [url], tls });
      await expect(waitUntilReady(store, 1_000)).rejects.toThrow();
      replaceFile(pair.keyFile, renewed.key);
      replaceFile(pair.certFile, renewed.cert);
      await waitUntilReady(store, 10_000);
    });
  });

  test("on a Cluster, whose other nodes are discovered from one URL", async () => {
    const ports = [await freePort(), await freePort(), await freePort()];
    const cluster = await startRedisCluster({
      conf: { ...tlsConf(0), "tls-cluster": "yes" },
      tlsPorts: ports,
    });
    onTestFinished(() => cluster.stop());
    const url = `rediss://127.0.0.1:${ports[0]}`;
    const store = open({ mode: "cluster", urls: [url], tls: trusting(ca, client) });
    await waitUntilReady(store, 20_000);
    const keys = Array.from({ length: 30 }, (_, index) => `tls:{${index}}`);
    for (const key of keys) await claim(store, key);
    await store.ping();
    for (const { port } of cluster.nodes)
      expect(Number((await askRedis(port, "DBSIZE")).slice(1)), `keys at ${port}`).toBeGreaterThan(
        0,
      );

    const stranger = open({ mode: "cluster", urls: [url], tls: trusting(createTestCa(), client) });
    // The client does not give the cause for a Cluster.
    await expect(waitUntilReady(stranger, 3_000)).rejects.toThrow(/Connection is closed/);
  }, 90_000);
});

describe("Postgres over TLS", () => {
  const ca = createTestCa("Postgres CA");
  const directory = scratchDirectory("postgres-tls");
  const [cert, key] = [join(directory, "server.pem"), join(directory, "server.key")];
  let postgres: PostgresServer;
  beforeAll(async () => {
    chmodSync(directory, 0o755);
    write(ca.issue({ hosts: ["127.0.0.1"] }));
    postgres = await startPostgres({
      settings: { ssl: "on", ssl_cert_file: cert, ssl_key_file: key },
    });
  });
  afterAll(() => postgres?.discard());

  function write(pair: { cert: string; key: string }): void {
    const user = unprivilegedUser();
    for (const [path, text] of [
      [cert, pair.cert],
      [key, pair.key],
    ] as const) {
      writeFileSync(path, text, { mode: 0o600 });
      if (user) chownSync(path, user.uid, user.gid);
    }
  }

  async function serve(subject: { hosts: string[] }): Promise<void> {
    const before = await servedCertificate();
    write(ca.issue(subject));
    process.kill(postgres.pid, "SIGHUP");
    await until(async () => (await servedCertificate()) !== before, {
      what: "Postgres to read its certificate",
    });
  }

  /** As Postgres names it: the handshake of Postgres is not that of TLS alone. */
  async function servedCertificate(): Promise<string> {
    const db = new Client({
      connectionString: postgres.uri(),
      ssl: { rejectUnauthorized: false },
    });
    await db.connect();
    const { stream } = (db as unknown as { connection: { stream: TLSSocket } }).connection;
    const { serialNumber } = stream.getPeerCertificate();
    await db.end();
    return serialNumber;
  }

  async function isEncrypted(query: string): Promise<boolean> {
    const { uri } = withExplicitSslMode(`${postgres.uri()}${query}`);
    expect(await isPooled(uri)).toBe(false);
    const db = openPostgres({ uri, poolMax: 1 });
    onTestFinished(() => db.close());
    const { rows } = await db.query<{ ssl: boolean }>(
      sql`select ssl from pg_stat_ssl where pid = pg_backend_pid()`,
    );
    return rows[0]?.ssl ?? false;
  }

  test.each(["require", "verify-ca", "verify-full"])("sslmode=%s with the CA", async (mode) => {
    expect(await isEncrypted(`?sslmode=${mode}&sslrootcert=${ca.caFile}`)).toBe(true);
  });

  test.each(["require", "verify-full"])("sslmode=%s refuses another CA", async (mode) => {
    const other = createTestCa("Another CA").caFile;
    await expect(isEncrypted(`?sslmode=${mode}&sslrootcert=${other}`)).rejects.toThrow(
      /not signed by a trusted CA/,
    );
    await expect(isEncrypted(`?sslmode=${mode}`)).rejects.toThrow(/not signed by a trusted CA/);
  });

  test("a name or an address that its certificate does not have is refused", async () => {
    const localhost = postgres.uri().replace("127.0.0.1", "localhost");
    const query = `?sslmode=verify-full&sslrootcert=${ca.caFile}`;
    await expect(isPooled(localhost + query)).rejects.toThrow(/does not match certificate/);
    await serve({ hosts: ["localhost"] });
    expect(await isPooled(localhost + query)).toBe(false);
    await expect(isPooled(postgres.uri() + query)).rejects.toThrow(/does not match certificate/);
    await serve({ hosts: ["127.0.0.1"] });
  });

  test("no-verify encrypts and checks nothing; without sslmode nothing is encrypted", async () => {
    expect(await isEncrypted("?sslmode=no-verify")).toBe(true);
    expect(await isEncrypted("")).toBe(false);
  });

  test("LISTEN works over TLS", async () => {
    const { uri } = withExplicitSslMode(
      `${postgres.uri()}?sslmode=verify-full&sslrootcert=${ca.caFile}`,
    );
    const db = openPostgres({ uri, poolMax: 1 });
    onTestFinished(() => db.close());
    let calls = 0;
    await db.listen("tls_test", () => {
      calls += 1;
    });
    const before = calls;
    await db.script("notify tls_test");
    await until(() => calls > before, { what: "a notification" });
  });
});
