import { setTimeout as wait } from "node:timers/promises";
import { ROUTES } from "@tenure/protocol";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createNodeRelay } from "../src/deployments/node-relay.ts";
import { systemClock } from "../src/kernel/clock.ts";
import { silentLog } from "../src/kernel/log.ts";
import { requirePeerTokenOnceListed } from "../src/membership/peer-token.ts";
import { registerInstance, renewInstance } from "../src/membership/store/instance-store.ts";
import { forward } from "../src/nonces/forward.ts";
import { openPostgres } from "../src/store/postgres.ts";
import { openApp, openAppDatabase, type TestApp } from "./apps.ts";

const TOKENS = { TENURE_TOKENS: "admin:a-long-admin-secret" };
const WITH_PEER_TOKEN = { ...TOKENS, TENURE_AUTH_PEER_TOKEN: "peers-only" };

let database: TestDatabase;
beforeAll(async () => {
  database = await openAppDatabase();
});
afterAll(() => database.drop());

/** The row of another instance, renewed every 50 ms until the test ends, or never. */
async function listed({ renewed, ttlMs }: { renewed: boolean; ttlMs: number }): Promise<void> {
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  const term = { instanceId: "other", bootId: crypto.randomUUID(), ttlMs };
  await registerInstance(db, { ...term, url: "http://10.0.0.7:7070", version: "0.1.0" });
  const ended = new AbortController();
  const renewal = (async () => {
    while (renewed && !ended.signal.aborted) {
      await renewInstance(db, term);
      await wait(50);
    }
  })();
  onTestFinished(async () => {
    ended.abort();
    await renewal;
    await db.script("delete from instance");
    await db.close();
  });
}

async function open(env: Record<string, string>): Promise<TestApp> {
  const app = await openApp(database.uri, env);
  onTestFinished(() => app.stop());
  return app;
}

test("an instance that asks for tokens starts alone without auth.peer_token", async () => {
  await open(TOKENS);
});

test("an instance without auth.peer_token is refused beside a live one, and told what to set", async () => {
  await listed({ renewed: true, ttlMs: 15_000 });
  await expect(open(TOKENS)).rejects.toThrow(
    /^auth\.peer_token is not set, and instance other at http:\/\/10\.0\.0\.7:7070 is live: .*Set auth\.peer_token \(TENURE_AUTH_PEER_TOKEN\)/,
  );
});

test("an instance with auth.peer_token, or one that asks for no tokens, starts beside a live one", async () => {
  await listed({ renewed: true, ttlMs: 15_000 });
  await open(WITH_PEER_TOKEN);
  await open({});
});

test("the row of a killed instance delays the start until it has run out", async () => {
  await listed({ renewed: false, ttlMs: 1_500 });
  await open(TOKENS);
});

test("the later of two instances listed at the same moment without auth.peer_token ends", async () => {
  const db = openPostgres({ uri: database.uri, poolMax: 1 });
  onTestFinished(() => db.close());
  const required = { authenticates: true, peerToken: "", db, clock: systemClock, log: silentLog };
  for (const instanceId of ["zeta", "alpha"]) {
    const boot = { bootId: crypto.randomUUID(), url: "http://10.0.0.7:7070", version: "0.1.0" };
    await registerInstance(db, { instanceId, ...boot, ttlMs: 15_000 });
    await wait(5);
  }
  onTestFinished(() => db.script("delete from instance"));
  await requirePeerTokenOnceListed({ ...required, instanceId: "zeta" });
  await expect(requirePeerTokenOnceListed({ ...required, instanceId: "alpha" })).rejects.toThrow(
    "instance zeta at http://10.0.0.7:7070 is live",
  );
});

test("an instance refused by its peer names auth.peer_token to its caller and in its log", async () => {
  const peer = await open(WITH_PEER_TOKEN);
  const relay = createNodeRelay({
    instanceId: "here",
    peerToken: "another secret",
    connected: () => [],
    present: () => [{ address: "node", instance_id: "there" }],
    instances: async () => [{ instance_id: "there", url: peer.url }],
  });
  const by = { tenant: "default", forwarded: false };
  const request = { deployment_id: "web", lines: 1, address: "node", ...by };
  const names = expect.stringContaining("auth.peer_token (TENURE_AUTH_PEER_TOKEN)");
  const refused = expect.objectContaining({ code: "DEPENDENCY_DOWN", message: names });
  await expect(relay.readLog(request)).rejects.toEqual(refused);
  await expect(relay.restart("web", ["node"], by)).rejects.toEqual(refused);
  const call = { route: ROUTES.allocateNonces, params: { signer: "s" }, body: { request_id: "r" } };
  const identity = { instanceId: "here", peerToken: "" };
  const there = { instance_id: "there", url: peer.url };
  const access = { tenant: "default" };
  expect(await forward(there, { ...call, access, timeoutMs: 5_000 }, identity)).toEqual({
    outcome: "unanswered",
    reason: names,
  });
});
