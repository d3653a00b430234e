import { randomUUID } from "node:crypto";
import { challengeText } from "@tenure/protocol";
import { connectRawNode, createNodeKey, registration } from "@tenure/testing/fleet/raw-node";
import { connectRawSession } from "@tenure/testing/fleet/raw-session";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openServer } from "../../testing/databases.ts";
import { HOT_STORES } from "../../testing/hot-stores.ts";
import { startTestApp } from "../../testing/test-app.ts";
import type { App } from "../app.ts";

const TOKENS =
  "admin:admin-secret-word,node:node-secret-words,session:session-secret-word,viewer:viewer-secret-word";
const asNode = { authorization: "Bearer node-secret-words" };
const asSession = { authorization: "Bearer session-secret-word" };

// Every way in that must stay shut. Each is tried; none gets in where it does not belong.
describe.each(HOT_STORES)("admission: %s", (hot) => {
  let database: Awaited<ReturnType<typeof openServer>>;
  let app: App;
  let url: string;
  beforeAll(async () => {
    database = await openServer();
    app = await startTestApp({ postgresUri: database.uri, hot, env: { TENURE_TOKENS: TOKENS } });
    url = app.url;
  });
  afterAll(async () => {
    await app.stop();
    await database.close();
  });

  const rows = async () =>
    (
      await fetch(`${url}/api/v1/nodes`, { headers: { authorization: "Bearer admin-secret-word" } })
    ).json() as Promise<{ items: { node_id: string; online: boolean }[] }>;
  const isOnline = async (address: string) =>
    (await rows()).items.some(({ node_id, online }) => node_id === address && online);

  test("a node that signs its challenge and has a token is admitted", async () => {
    const node = await connectRawNode({ url, headers: asNode });
    const ack = await node.register();
    expect(ack).toMatchObject({
      node_id: node.key.address,
      instance_id: app.instanceId,
      heartbeat_interval_ms: 5_000,
    });
    expect(await node.receive("host_event")).toMatchObject({ event: "INIT" });
    await node.close();
  });

  test("the token may come in the message instead of the header", async () => {
    const node = await connectRawNode({ url });
    await node.register({ token: "node-secret-words" });
    await node.close();
  });

  test("a signature by another key is rejected", async () => {
    const victim = createNodeKey();
    const thief = await connectRawNode({ url, headers: asNode });
    void thief.register({ address: victim.address }).catch(() => {});
    expect(await thief.closed).toMatchObject({ code: 4401 });
    expect(await isOnline(victim.address)).toBe(false);
  });

  test("a signature for another challenge, instance, boot or address is rejected", async () => {
    const key = createNodeKey();
    const bootId = randomUUID();
    const good = await connectRawNode({ url, key, bootId, headers: asNode });
    const { nonce, server_id } = await good.receive("node_challenge");
    await good.close();
    const replays = [
      { server_id, nonce, address: key.address, boot_id: bootId },
      { server_id: "other", nonce: "fresh", address: key.address, boot_id: bootId },
      { server_id, nonce: "fresh", address: key.address, boot_id: randomUUID() },
      { server_id, nonce: "fresh", address: createNodeKey().address, boot_id: bootId },
    ];
    for (const signed of replays) {
      const node = await connectRawNode({ url, key, bootId, headers: asNode });
      const challenge = await node.receive("node_challenge");
      const text = challengeText({
        ...signed,
        nonce: signed.nonce === "fresh" ? challenge.nonce : signed.nonce,
      });
      node.send(registration({ address: key.address, boot_id: bootId, signature: key.sign(text) }));
      expect(await node.closed).toMatchObject({ code: 4401 });
    }
  });

  test("a second try on one challenge is rejected, even with the right signature", async () => {
    const node = await connectRawNode({ url, headers: asNode });
    const { nonce, server_id } = await node.receive("node_challenge");
    const identity = { address: node.key.address, boot_id: node.bootId };
    const right = node.key.sign(challengeText({ server_id, nonce, ...identity }));
    node.send(registration({ ...identity, signature: node.key.sign("something else") }));
    node.send(registration({ ...identity, signature: right }));
    expect(await node.closed).toMatchObject({ code: 4401 });
    expect(await isOnline(node.key.address)).toBe(false);
  });

  test.each([
    { what: "no token", headers: {}, code: 4401 },
    { what: "a wrong token", headers: { authorization: "Bearer guess" }, code: 4401 },
    {
      what: "a viewer's token",
      headers: { authorization: "Bearer viewer-secret-word" },
      code: 4403,
    },
    { what: "a session's token", headers: asSession, code: 4403 },
  ])("a node with $what is rejected", async ({ headers, code }) => {
    const node = await connectRawNode({ url, headers });
    void node.register().catch(() => {});
    expect(await node.closed).toMatchObject({ code });
    expect(await isOnline(node.key.address)).toBe(false);
  });

  test("the same key from a second process is rejected with a reason while the first answers", async () => {
    const first = await connectRawNode({ url, headers: asNode });
    await first.register();
    const second = await connectRawNode({ url, key: first.key, headers: asNode });
    void second.register().catch(() => {});
    expect(await second.receive("error")).toMatchObject({ code: "NODE_ADDRESS_IN_USE" });
    expect(await second.closed).toMatchObject({ code: 4409 });
    expect((await first.heartbeat(1)).presence_ok).toBe(true);
    await first.close();
  });

  test("a node that connects again with the same boot replaces its older connection", async () => {
    const old = await connectRawNode({ url, headers: asNode });
    const before = await old.register();
    const fresh = await connectRawNode({ url, key: old.key, bootId: old.bootId, headers: asNode });
    const after = await fresh.register();
    expect(after.epoch).toBeGreaterThan(before.epoch);
    expect(await old.closed).toMatchObject({ code: 4409 });
    expect((await fresh.heartbeat(1)).presence_ok).toBe(true);
    expect(await isOnline(old.key.address)).toBe(true);
    await fresh.close();
  });

  test("another version of the protocol is rejected", async () => {
    const node = await connectRawNode({ url, headers: asNode });
    void node.register({ protocol_version: 2 }).catch(() => {});
    expect(await node.receive("error")).toMatchObject({ code: "UNSUPPORTED_VERSION" });
    expect(await node.closed).toMatchObject({ code: 4400 });
  });

  test("a page of another site, and a foreign host name, are rejected", async () => {
    const evil = connectRawNode({ url, headers: { ...asNode, origin: "https://evil.example" } });
    await expect(evil).rejects.toThrow("403");
    const rebound = connectRawSession({ url, headers: { ...asSession, host: "evil.example" } });
    await expect(rebound).rejects.toThrow("403");
  });

  test("a session resumes with its token; without it, or with another, it does not", async () => {
    const session = await connectRawSession({ url, headers: asSession });
    const { session_id, resume_token } = await session.init();
    await session.close();
    for (const stolen of [{}, { resume_token: "x".repeat(43) }]) {
      const thief = await connectRawSession({ url, headers: asSession });
      thief.send({ type: "session_init", protocol_version: 1, session_id, ...stolen });
      expect(await thief.closed).toMatchObject({ code: 4401 });
      expect(thief.received).not.toContainEqual(
        expect.objectContaining({ type: "session_init_ack" }),
      );
    }
    const back = await connectRawSession({ url, headers: asSession });
    expect((await back.init({ session_id, resume_token })).session_id).toBe(session_id);
    await back.close();
  });

  test("a session that is no longer known gets a new one", async () => {
    const session = await connectRawSession({ url, headers: asSession });
    const unknown = "0".repeat(32);
    const ack = await session.init({ session_id: unknown, resume_token: "x".repeat(43) });
    expect(ack.session_id).not.toBe(unknown);
    await session.close();
  });

  test("a session that ends by session_close leaves nothing to resume", async () => {
    const session = await connectRawSession({ url, headers: asSession });
    const { session_id, resume_token } = await session.init();
    session.send({ type: "session_close" });
    expect(await session.closed).toMatchObject({ code: 1000 });
    const again = await connectRawSession({ url, headers: asSession });
    expect((await again.init({ session_id, resume_token })).session_id).not.toBe(session_id);
    await again.close();
  });

  test("a message before the registration is rejected", async () => {
    const node = await connectRawNode({ url, headers: asNode });
    for (let n = 0; n < 3; n++) node.send({ type: "node_heartbeat", seq: n, running: [] });
    expect(await node.closed).toMatchObject({ code: 4400 });
    const session = await connectRawSession({ url, headers: asSession });
    for (let n = 0; n < 3; n++) session.send({ type: "session_close" });
    expect(await session.closed).toMatchObject({ code: 4400 });
  });
});
