import { Session, Worker } from "@tenure/sdk";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";

// Three instances under load: a worker and a session of a stolen token are out everywhere, and no job of another token is lost.

const ADMIN = "the-first-admin-of-three";
const JOBS = 600;

let database: TestDatabase;
let servers: RunningServer[];
beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
  const env = {
    ...storeSettings({ postgresUri: database.uri, redisUrl: stores().redisUrl }),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
    TENURE_TOKENS: `admin:${ADMIN}`,
    TENURE_AUTH_PEER_TOKEN: "between-the-three-instances",
  };
  // The first one makes the schema.
  servers = [await startServer({ env })];
  servers.push(...(await Promise.all([startServer({ env }), startServer({ env })])));
}, 240_000);
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  await database.drop();
}, 120_000);

async function call(path: string, body: object) {
  const { status, body: answer } = await servers[0]!.get(`/api/v1${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(status).toBe(200);
  return answer as { id: string; secret: string };
}

const create = (name: string, role: string) => call("/tokens", { name, role });

test("a revocation under load: out at three instances, no job of other tokens lost", {
  timeout: 300_000,
}, async () => {
  const [goodNode, badNode, goodSession, badSession] = await Promise.all([
    create("good-node", "node"),
    create("bad-node", "node"),
    create("good-session", "session"),
    create("bad-session", "session"),
  ]);
  const ends: number[] = [];
  const hire = (url: string, token: string, onEnd?: () => void) =>
    new Worker({
      ...{ url, token, pools: ["p"], capacity: 8 },
      run: async ({ payload }) => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return payload;
      },
      ...(onEnd && { on: { down: onEnd } }),
    });
  const noteEnd = () => void ends.push(performance.now());
  const good = servers.map(({ url }) => hire(url, goodNode.secret));
  const bad = servers.map(({ url }) => hire(url, badNode.secret, noteEnd));
  await until(() => [...good, ...bad].every((worker) => worker.nodeId), {
    what: "the workers",
    deadlineMs: 120_000,
  });
  const stolen = servers.map(
    ({ url }) => new Session({ url, token: badSession.secret, on: { down: noteEnd } }),
  );
  await Promise.all(stolen.map((session) => session.submit({ pool: "p", payload: 0 })));
  const sessions = servers.map(({ url }) => new Session({ url, token: goodSession.secret }));
  const results: PromiseLike<{ body: unknown }>[] = [];
  let beganMs = 0;
  for (let at = 0; at < JOBS; at++) {
    results.push(sessions[at % 3]!.submit({ pool: "p", payload: at, pendingMs: 120_000 }));
    if (at === JOBS / 2) {
      beganMs = performance.now();
      await Promise.all([badNode, badSession].map(({ id }) => call(`/tokens/${id}/revoke`, {})));
    }
    if (at % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect((await Promise.all(results)).map(({ body }) => body)).toEqual(
    Array.from({ length: JOBS }, (_, at) => at),
  );
  await until(() => ends.length >= 6, { what: "the ends", deadlineMs: 10_000 });
  const outMs = Math.max(...ends.slice(0, 6)) - beganMs;
  process.stdout.write(`revoked: out at three instances within ${Math.round(outMs)} ms\n`);
  // 2 s on a machine that does nothing else.
  expect(outMs).toBeLessThan(10_000);
  await Promise.all([...good, ...bad, ...sessions, ...stolen].map((each) => each.close()));
});
