import { X509Certificate } from "node:crypto";
import { join } from "node:path";
import { ROUTES, Session } from "@tenure/sdk";
import {
  CLIENT,
  createTestCa,
  mountSecret,
  type PairFiles,
  replaceFile,
} from "@tenure/testing/certificates";
import { FLEET_TOKEN, FLEET_TOKEN_ENV } from "@tenure/testing/fleet/fleet-token";
import { spawnUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import type { RunningServer } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  admin,
  ca,
  handshake,
  hire,
  ownDatabase,
  servedSerial,
  startTlsServer,
  tlsEnv,
  untilServed,
} from "./tls-scene.ts";

// Real processes on a busy machine.
vi.setConfig({ testTimeout: 300_000 });

const trust = { caFile: ca.caFile };
const other = createTestCa("Another CA");
const serialOf = (pair: { cert: string }) => new X509Certificate(pair.cert).serialNumber;

function openSession(url: string, tls?: ConstructorParameters<typeof Session>[0]["tls"]): Session {
  const session = new Session({ url, token: FLEET_TOKEN, tls });
  onTestFinished(() => session.close());
  return session;
}

describe("a server with a certificate", () => {
  test("serves workers, sessions, commands, node-units and the HTTP API by TLS only", async () => {
    const server = await startTlsServer(tlsEnv(ca.files("listener")));
    expect(server.url).toMatch(/^https:/);
    await hire({ url: server.url, tls: trust }).registered();
    await hire({ url: server.url, tls: trust, blocking: true, pools: ["busy"] }).registered();
    const session = openSession(server.url, trust);
    expect(await session.submit({ pool: "echo", payload: 1 })).toMatchObject({ body: 1 });
    expect(await session.submit({ pool: "busy", payload: 2 })).toMatchObject({ body: 2 });

    const env = { TENURE_CA_FILE: ca.caFile, TENURE_TOKEN: FLEET_TOKEN };
    const command = startTenure(["node", "ls", "--url", server.url], { env });
    expect(await command.exited, command.stderr()).toMatchObject({ code: 0 });
    const unit = await startUnit({
      name: "unit",
      urls: [server.url],
      env: { HOST_CA_FILE: ca.caFile, HOST_TOKEN: FLEET_TOKEN },
    });
    await unit.stop();

    const plain = server.url.replace("https:", "http:");
    await expect(fetch(`${plain}/health/live`)).rejects.toThrow();
    await expect(handshake(server.url, { maxVersion: "TLSv1.1" })).rejects.toThrow();
    const api = admin(server.url, trust);
    const { instances } = await api.call(ROUTES.readCluster, {});
    expect(instances[0]?.url).toBe(server.url);
  });

  test("a client that trusts another CA sends nothing to it", async () => {
    const impostor = await startTlsServer(tlsEnv(other.files("impostor")));
    const untrusted = /not signed by a CA that this process trusts/;
    await expect(admin(impostor.url, trust).call(ROUTES.readCluster, {})).rejects.toThrow(
      untrusted,
    );
    await expect(admin(impostor.url, undefined).call(ROUTES.readCluster, {})).rejects.toThrow(
      untrusted,
    );
    expect(await hire({ url: impostor.url, tls: trust }).refused()).toMatch(untrusted);
    expect(await hire({ url: impostor.url, tls: trust, blocking: true }).refused()).toMatch(
      untrusted,
    );
    const env = { TENURE_TOKEN: FLEET_TOKEN, TENURE_CA_FILE: ca.caFile };
    const command = startTenure(["node", "ls", "--url", impostor.url], { env });
    expect(await command.exited).toMatchObject({ code: 1 });
    expect(command.stderr()).toMatch(untrusted);
    const unit = spawnUnit({
      name: "deceived",
      urls: [impostor.url],
      env: { HOST_TOKEN: FLEET_TOKEN, HOST_CA_FILE: ca.caFile },
    });
    onTestFinished(async () => void (await unit.stop()));
    await unit.waitForLine(untrusted);
    const { items } = await admin(impostor.url, { caFile: other.caFile }).call(
      ROUTES.listNodes,
      {},
    );
    expect(items).toEqual([]);
  });

  test("a certificate for other names is refused", async () => {
    const pair = ca.files("elsewhere", { hosts: ["elsewhere.example"] });
    const server = await startTlsServer(tlsEnv(pair));
    await expect(admin(server.url, trust).call(ROUTES.readCluster, {})).rejects.toThrow(
      /for other names than that of the URL/,
    );
    expect(await hire({ url: server.url, tls: trust }).refused()).toMatch(/for other names/);
  });

  test.each([
    [
      "a file that is not there",
      () => ({ certFile: "/nowhere.pem" }),
      /cert_file names a file that cannot be read \(ENOENT\)/,
    ],
    [
      "the key of another certificate",
      () => ({ keyFile: ca.files("stray").keyFile }),
      /key_file is not the key of the certificate in server\.tls\.cert_file/,
    ],
    [
      "no certificate",
      () => ({ certFile: ca.files("swapped").keyFile }),
      /cert_file has no certificate in PEM/,
    ],
    [
      "a certificate that has expired",
      () => ca.files("expired", { from: new Date("2020-01-01"), until: new Date("2021-01-01") }),
      /the certificate in server\.tls\.cert_file has expired/,
    ],
  ])("a server with %s does not start, and says why", async (_, wrong, sentence) => {
    const pair = { ...ca.files("right"), ...wrong() };
    const server = startTenure(["server", "--port", "0"], { env: tlsEnv(pair), dataDir: true });
    expect(await server.exited).toMatchObject({ code: 1 });
    expect(server.stderr()).toMatch(sentence);
    expect(server.stderr()).not.toMatch(/ at .*\.js/);
  });
});

describe("a certificate that is replaced", () => {
  const logged = (server: RunningServer, event: string) =>
    server
      .stderr()
      .split("\n")
      .filter((line) => line.includes(`"${event}"`));

  test("by renames: new handshakes get it, the connections that are open stay", async () => {
    const pair = ca.files("renamed");
    const server = await startTlsServer(tlsEnv(pair));
    const { registered, losses } = hire({ url: server.url, tls: trust });
    await registered();
    expect(await servedSerial(server.url)).toBe(serialOf(pair));
    const renewed = ca.files("renamed");
    await untilServed(server.url, serialOf(renewed));
    expect(logged(server, "tls.reloaded")).toHaveLength(1);
    expect(losses).toEqual([]);
    expect(await openSession(server.url, trust).submit({ pool: "echo", payload: 3 })).toMatchObject(
      {
        body: 3,
      },
    );
  });

  test("by the links of a mounted secret", async () => {
    const directory = scratchDirectory("secret");
    const mount = (pair: { cert: string; key: string }) =>
      mountSecret(directory, { "tls.crt": pair.cert, "tls.key": pair.key });
    mount(ca.issue());
    const server = await startTlsServer(
      tlsEnv({ certFile: join(directory, "tls.crt"), keyFile: join(directory, "tls.key") }),
    );
    const renewed = ca.issue();
    mount(renewed);
    await untilServed(server.url, serialOf(renewed));
  });

  test("by SIGHUP at once", async () => {
    const server = await startTlsServer(tlsEnv(ca.files("signalled")));
    const renewed = ca.files("signalled");
    process.kill(server.pid, "SIGHUP");
    await untilServed(server.url, serialOf(renewed));
    expect((await admin(server.url, trust).call(ROUTES.readCluster, {})).instances).toHaveLength(1);
  });

  test("by one that cannot be used: the former stays, one error says why, and the next is taken", async () => {
    const pair = ca.files("broken");
    const server = await startTlsServer(tlsEnv(pair));
    const { cert, key } = ca.issue();
    replaceFile(pair.certFile, cert);
    await server.waitForLine(/tls\.not-reloaded.*key_file is not the key of the certificate/);
    expect(await servedSerial(server.url)).toBe(serialOf(pair));
    replaceFile(pair.certFile, "-----BEGIN CERTIFICATE-----\nnonsense\n");
    await server.waitForLine(/tls\.not-reloaded.*has no certificate in PEM/);
    expect(await servedSerial(server.url)).toBe(serialOf(pair));
    const old = ca.issue({ from: new Date("2020-01-01"), until: new Date("2021-01-01") });
    replaceFile(pair.keyFile, old.key);
    replaceFile(pair.certFile, old.cert);
    await server.waitForLine(/tls\.not-reloaded.*has expired/);
    expect(await servedSerial(server.url)).toBe(serialOf(pair));
    replaceFile(pair.keyFile, key);
    replaceFile(pair.certFile, cert);
    await untilServed(server.url, serialOf({ cert }));
    expect(logged(server, "tls.not-reloaded")).toHaveLength(3);
  });
});

describe("client certificates", () => {
  const client: PairFiles = ca.files("client", CLIENT);
  const certified = { ...trust, certFile: client.certFile, keyFile: client.keyFile };
  const foreign = other.files("foreign", CLIENT);
  const mutual = (name: string) => ({
    ...tlsEnv(ca.files(name)),
    TENURE_SERVER_TLS_CLIENT_CA_FILE: ca.caFile,
    TENURE_SERVER_TLS_CA_FILE: ca.caFile,
  });
  // Signers are spread over the instances: most of these belong to another one.
  const signers = Array.from({ length: 12 }, (_, index) => {
    const digit = index.toString(16);
    return `eip155:1:0x${digit.repeat(40)}`;
  });
  const allocateMany = ({ url }: RunningServer) =>
    Promise.allSettled(
      signers.map((signer) =>
        admin(url, trust).call(ROUTES.allocateNonces, {
          params: { signer },
          body: { request_id: crypto.randomUUID() },
        }),
      ),
    );
  const rejected = (outcomes: PromiseSettledResult<unknown>[]) =>
    outcomes.filter(({ status }) => status === "rejected");
  /** On a busy machine a call may also take too long. */
  const doubtedByTls = /peer\.doubted.*(certificate|CA|TLS|SSL)/;
  const needed = /a node needs a client certificate that server\.tls\.client_ca_file accepts/;

  test("are required of nodes, and not of sessions, commands and probes", async () => {
    const server = await startTlsServer(mutual("nodes"));
    expect(await hire({ url: server.url, tls: trust }).refused()).toMatch(needed);
    const stranger = { ...trust, certFile: foreign.certFile, keyFile: foreign.keyFile };
    expect(await hire({ url: server.url, tls: stranger }).refused()).toMatch(needed);
    const env = { HOST_TOKEN: FLEET_TOKEN, HOST_CA_FILE: ca.caFile };
    const bare = spawnUnit({ name: "bare", urls: [server.url], env });
    onTestFinished(async () => void (await bare.stop()));
    await bare.waitForLine(needed);
    expect((await admin(server.url, trust).call(ROUTES.listNodes, {})).items).toEqual([]);

    await hire({ url: server.url, tls: certified }).registered();
    await hire({ url: server.url, tls: certified, blocking: true }).registered();
    const unit = await startUnit({
      name: "unit",
      urls: [server.url],
      env: { ...env, HOST_CERT_FILE: client.certFile, HOST_KEY_FILE: client.keyFile },
    });
    await unit.stop();
    expect(await openSession(server.url, trust).submit({ pool: "echo", payload: 4 })).toMatchObject(
      {
        body: 4,
      },
    );
  });

  test("are required to enrol: without one the join token stays unused", async () => {
    const server = await startTlsServer(mutual("enrolling"));
    const { secret } = await admin(server.url, trust).call(ROUTES.createToken, {
      body: { name: "join", role: "node", join: true },
    });
    const spec = {
      urls: [server.url],
      env: { TENURE_JOIN_TOKEN: secret, HOST_CA_FILE: ca.caFile },
    };
    const bare = spawnUnit({ name: "bare", ...spec });
    expect(await bare.exited).toMatchObject({ code: expect.any(Number) });
    expect(bare.stderr()).toMatch(needed);
    const unit = await startUnit({
      ...{ name: "certified", ...spec },
      env: { ...spec.env, HOST_CERT_FILE: client.certFile, HOST_KEY_FILE: client.keyFile },
    });
    await unit.stop();
  });

  test("are not replaced by a resumed session of TLS 1.3, which counts as authorized", async () => {
    const server = await startTlsServer(mutual("resumed"));
    const first = await handshake(server.url, {});
    const session = await new Promise<Buffer>((resolve) => first.once("session", resolve));
    first.destroy();
    const resumed = await handshake(server.url, { session });
    expect(resumed.isSessionReused(), "the session is resumed").toBe(true);
    const [path, token] = ["/api/v1/cluster", FLEET_TOKEN_ENV.TENURE_AUTH_PEER_TOKEN];
    resumed.write(
      `GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${token}\r\nx-tenure-forwarded: me\r\nconnection: close\r\n\r\n`,
    );
    const answer = await new Promise<string>((resolve) => {
      let text = "";
      resumed.on("data", (bytes) => {
        text += bytes;
      });
      resumed.once("close", () => resolve(text));
    });
    expect(answer).toMatch(/^HTTP\/1.1 403/);
    expect(answer).toContain("need a client certificate");
  });

  test("are required of calls between instances, which have them", async () => {
    const postgres = await ownDatabase();
    const env = { TENURE_SERVER_POSTGRES_URI: postgres, TENURE_NONCE_MODE: "worker_queue" };
    const [a, b] = [
      await startTlsServer({ ...mutual("a"), ...env }),
      await startTlsServer({ ...mutual("b"), ...env }),
    ];
    // Without the CA of the others, and with a certificate of another CA: it reaches nobody.
    const c = await startTlsServer({
      ...mutual("c"),
      ...env,
      TENURE_SERVER_TLS_CA_FILE: other.caFile,
    });
    const d = await startTlsServer({
      ...mutual("d"),
      ...env,
      TENURE_SERVER_TLS_PEER_CERT_FILE: foreign.certFile,
      TENURE_SERVER_TLS_PEER_KEY_FILE: foreign.keyFile,
    });
    const outcomes = [...(await allocateMany(a)), ...(await allocateMany(b))];
    expect(rejected(outcomes)).toEqual([]);
    for (const server of [a, b]) expect(server.stderr()).not.toMatch(doubtedByTls);
    await allocateMany(c);
    await c.waitForLine(/peer\.doubted.*not signed by a trusted CA/);
    await allocateMany(d);
    await d.waitForLine(/peer\.doubted.*need a client certificate/);
  });

  test("an instance with TLS and one without call each other while a fleet is changed over", async () => {
    const postgres = await ownDatabase();
    const env = { TENURE_SERVER_POSTGRES_URI: postgres, TENURE_NONCE_MODE: "worker_queue" };
    const plain = await startTlsServer({ ...env, TENURE_SERVER_TLS_CA_FILE: ca.caFile });
    const tls = await startTlsServer({ ...mutual("mixed"), ...env });
    const asPeer = {
      TENURE_SERVER_TLS_PEER_CERT_FILE: client.certFile,
      TENURE_SERVER_TLS_PEER_KEY_FILE: client.keyFile,
    };
    const ready = await startTlsServer({ ...env, ...asPeer, TENURE_SERVER_TLS_CA_FILE: ca.caFile });
    expect([plain.url, tls.url].map((url) => new URL(url).protocol)).toEqual(["http:", "https:"]);
    for (const server of [tls, ready]) expect(rejected(await allocateMany(server))).toEqual([]);
    for (const server of [tls, ready]) expect(server.stderr()).not.toMatch(doubtedByTls);
    // It trusts the CA and has no certificate of its own. A call that was slow is not repeated at once.
    const isDoubted = async () => {
      await allocateMany(plain);
      return /peer\.doubted.*need a client certificate/.test(plain.stderr());
    };
    await until(isDoubted, { deadlineMs: 60_000, what: "the doubt of an instance with TLS" });
  });

  test("are required of everybody with client_auth = all", async () => {
    const server = await startTlsServer({
      ...mutual("everybody"),
      TENURE_SERVER_TLS_CLIENT_AUTH: "all",
    });
    await expect(admin(server.url, trust).call(ROUTES.listNodes, {})).rejects.toThrow();
    await server.waitForLine(/tls\.refused.*PEER_DID_NOT_RETURN_A_CERTIFICATE/);
    const { items } = await admin(server.url, certified).call(ROUTES.listNodes, {});
    expect(items).toEqual([]);
    const session = openSession(server.url, certified);
    await hire({ url: server.url, tls: certified }).registered();
    expect(await session.submit({ pool: "echo", payload: 5 })).toMatchObject({ body: 5 });
  });
});

test("a certificate is rolled on three instances under load, and no job is lost", async () => {
  const pair = ca.files("rolled");
  const client = ca.files("rolled-client", CLIENT);
  const env = {
    ...tlsEnv(pair),
    TENURE_SERVER_TLS_CLIENT_CA_FILE: ca.caFile,
    TENURE_SERVER_TLS_CA_FILE: ca.caFile,
    TENURE_SERVER_POSTGRES_URI: await ownDatabase(),
    TENURE_SCHEDULER_PHASE2_ENABLED: "true",
    TENURE_SCHEDULER_PHASE2_REDIS_URL: stores().redisUrl,
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
  };
  const servers: RunningServer[] = [];
  for (let each = 0; each < 3; each++) servers.push(await startTlsServer(env));
  const runs = new Map<number, number>();
  const tls = { ...trust, certFile: client.certFile, keyFile: client.keyFile };
  const hired = servers.map(({ url }) =>
    hire({
      url,
      tls,
      async run({ payload }) {
        const job = payload as number;
        runs.set(job, (runs.get(job) ?? 0) + 1);
        return job;
      },
    }),
  );
  for (const { registered } of hired) await registered();
  const sessions = servers.map(({ url }) => openSession(url, trust));

  let submitted = 0;
  const answers: Promise<unknown>[] = [];
  const load = setInterval(() => {
    for (const session of sessions) {
      const payload = submitted++;
      answers.push(
        session.submit({ pool: "echo", payload }).then(({ body }) => body === payload, String),
      );
    }
  }, 10);
  onTestFinished(() => clearInterval(load));
  await until(() => runs.size > 100, { what: "jobs that flow" });
  for (let round = 0; round < 3; round++) {
    const before = runs.size;
    const renewed = ca.files("rolled");
    ca.files("rolled-client", CLIENT);
    for (const { url } of servers) await untilServed(url, serialOf(renewed));
    // A new node and a new session connect with the new pairs, and take part.
    const late = hire({ url: servers[round]!.url, tls });
    await late.registered();
    await openSession(servers[round]!.url, trust).submit({ pool: "echo", payload: -1 - round });
    await until(() => runs.size > before + 100, { what: "jobs that flow on" });
  }
  clearInterval(load);
  const outcomes = await Promise.all(answers);
  expect(outcomes.filter((outcome) => outcome !== true)).toEqual([]);
  expect(outcomes.length).toBeGreaterThan(300);
  expect(
    [...runs.values()].filter((count) => count > 1),
    "no job ran twice",
  ).toEqual([]);
  expect(
    hired.flatMap(({ losses }) => losses),
    "the connections of before stay",
  ).toEqual([]);
});

test("tenure cert dev makes what a server and a command need", async () => {
  const directory = join(scratchDirectory("dev"), "certs");
  const made = startTenure(["cert", "dev", directory]);
  expect(await made.exited, made.stderr()).toMatchObject({ code: 0 });
  const [, certFile = ""] = /cert_file = "(.*)"/.exec(made.stdout()) ?? [];
  const [, keyFile = ""] = /key_file = "(.*)"/.exec(made.stdout()) ?? [];
  const server = await startTlsServer(tlsEnv({ certFile, keyFile }));
  const env = { TENURE_CA_FILE: join(directory, "ca.pem"), TENURE_TOKEN: FLEET_TOKEN };
  const url = server.url.replace("127.0.0.1", "localhost");
  const health = startTenure(["health", "--url", url], { env });
  expect(await health.exited, health.stderr()).toMatchObject({ code: 0 });
  const again = startTenure(["cert", "dev", directory]);
  expect(await again.exited).toMatchObject({ code: 1 });
  expect(again.stderr()).toContain("--renew issues new certificates");
});

test("a node-unit warns when it sends its token unencrypted to another machine", async () => {
  const env = { HOST_TOKEN: FLEET_TOKEN };
  const unit = spawnUnit({ name: "plain", urls: ["http://192.0.2.1:7070"], env });
  await unit.waitForLine(/config\.doubted.*unencrypted/);
  await unit.stop();
});

describe("a server that other machines can reach", () => {
  const warning = /config\.doubted.*travel unencrypted/;
  const start = async (env: Record<string, string>) => {
    const server = await startTlsServer({
      TENURE_SERVER_HOST: "0.0.0.0",
      TENURE_SERVER_ADVERTISE_URL: "http://127.0.0.1:7070",
      ...env,
    });
    return server.stderr();
  };

  test("warns without TLS, and not with it nor with a proxy that terminates it", async () => {
    expect(await start({})).toMatch(warning);
    expect(await start({ TENURE_SERVER_TLS_TERMINATED_BY_PROXY: "true" })).not.toMatch(warning);
    const tls = tlsEnv(ca.files("open"));
    const url = { TENURE_SERVER_ADVERTISE_URL: "https://127.0.0.1:7070" };
    expect(await start({ ...tls, ...url })).not.toMatch(warning);
  });
});
