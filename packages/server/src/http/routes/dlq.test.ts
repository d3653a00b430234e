import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import Fastify, { type FastifyInstance } from "fastify";
import { Registry } from "prom-client";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { redisSettings } from "../../../testing/hot-stores.ts";
import type { Delivery, Destination } from "../../delivery/contract.ts";
import { createDelivery } from "../../delivery/delivery.ts";
import { deliveryKeys } from "../../delivery/delivery-keys.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLog } from "../../kernel/log.ts";
import { announcePresence } from "../../membership/store/presence-store.ts";
import { openRedis, type RedisStore, waitUntilReady } from "../../store/redis.ts";
import { deliveryMetrics, metricsIn } from "../../telemetry.ts";
import { renderFailure } from "../failure.ts";
import { dlqRoutes } from "./dlq.ts";

const JOB_ID = "018f4e1a-0000-7000-8000-000000000001";
const JUNK = Buffer.from([0x00, 0xff, 0x7b]);
/** A colon is allowed in an instance id, and the last one divides. */
const INSTANCE = "host:1";

let store: RedisStore;
let delivery: Delivery;
let app: FastifyInstance;
let destination: Destination;
/** Whether the caller sees letters of all tenants. */
let operates: boolean;

beforeAll(async () => {
  store = openRedis({ ...redisSettings("redis"), prefix: uniqueKeyPrefix() });
  await waitUntilReady(store, 10_000);
  delivery = createDelivery({
    store,
    instanceId: INSTANCE,
    settings: {
      stream_group: "scheduler",
      stream_block_ms: 20,
      stream_count: 64,
      stream_maxlen: 10,
      dlq_enabled: true,
      dlq_maxlen: 100,
      dlq_max_deliveries: 3,
      dlq_scan_interval_ms: 5,
      dlq_scan_count: 100,
    },
    clock: systemClock,
    log: silentLog,
    telemetry: deliveryMetrics(metricsIn(new Registry())),
    receive: async () => "done",
    route: async () => destination,
  });
  delivery.start();
  app = Fastify();
  app.setErrorHandler(renderFailure(silentLog, 1_024));
  const caller = { name: "caller", role: "admin", tenant: "default" } as const;
  for (const { route, answer } of dlqRoutes({
    ...delivery.dlq,
    tenantOf: async (jobId) => (jobId === JOB_ID ? "default" : "blue"),
  })) {
    app.route({
      method: route.method,
      url: route.path,
      handler: async (request, reply) => answer(request, reply, { ...caller, operates }),
    });
  }
});
afterAll(async () => {
  await app.close();
  await delivery.stop();
  await store.close();
});

beforeEach(async () => {
  destination = { to: INSTANCE };
  operates = true;
  for (const letter of await delivery.dlq.list({ limit: 500 })) await delivery.dlq.discard(letter);
});

async function call(method: "GET" | "POST" | "DELETE", path: string) {
  const response = await app.inject({ method, url: `/api/v1/dlq${path}` });
  return { status: response.statusCode, body: response.body && response.json() };
}

/** A message past its deadline, and one that nobody can read. */
async function twoLetters() {
  await delivery.send(INSTANCE, {
    kind: "job.done",
    job_id: JOB_ID,
    attempt_id: 2,
    deadline_ms: 0,
  });
  await lettersAre(1);
  await store.client.xadd(deliveryKeys.inbox(store.prefix, INSTANCE), "*", "m", JUNK, "t", "1");
  await lettersAre(2);
  const { body } = await call("GET", "");
  return body.items as [{ id: string }, { id: string }];
}

const lettersAre = (count: number) =>
  until(async () => (await delivery.backlog(INSTANCE)).letters === count, {
    what: `${count} dead letters`,
  });

test("the list shows reason, age and original bytes of a letter", async () => {
  const [late, unreadable] = await twoLetters();
  expect(late).toMatchObject({
    id: expect.stringMatching(/^host:1:\d+-\d+$/),
    instance_id: INSTANCE,
    reason: "deadline",
    kind: "job.done",
    job_id: JOB_ID,
    attempt_id: 2,
    deliveries: 1,
  });
  expect(unreadable).toMatchObject({ reason: "unparsable", bytes: JUNK.toString("base64") });
  expect(unreadable).not.toHaveProperty("kind");
});

test("the list is paged and ends", async () => {
  const [first, second] = await twoLetters();
  const page = await call("GET", "?limit=1");
  expect(page.body).toMatchObject({ items: [{ id: first.id }], next_cursor: first.id });
  const last = await call("GET", `?limit=1&cursor=${first.id}`);
  expect(last.body).toMatchObject({ items: [{ id: second.id }], next_cursor: null });
  expect((await call("GET", `?instance_id=${INSTANCE}`)).body.items).toHaveLength(2);
  expect((await call("GET", "?instance_id=other")).body).toEqual({ items: [], next_cursor: null });
  expect((await call("GET", "?cursor=mine")).status).toBe(400);
});

test("pages of one tenant's admin hold its letters only, and no cursor names another", async () => {
  const foreign = "018f4e1a-0000-7000-8000-000000000002";
  const order = [foreign, JOB_ID, foreign, JOB_ID, foreign];
  for (const [at, job_id] of order.entries()) {
    await delivery.send(INSTANCE, { kind: "job.done", job_id, attempt_id: 1, deadline_ms: 0 });
    await lettersAre(at + 1);
  }
  operates = false;
  const first = await call("GET", "?limit=1");
  expect(first.body.items).toMatchObject([{ job_id: JOB_ID }]);
  expect(first.body.next_cursor).toBe(first.body.items[0].id);
  const last = await call("GET", `?limit=1&cursor=${first.body.next_cursor}`);
  expect(last.body).toMatchObject({ items: [{ job_id: JOB_ID }], next_cursor: null });
  expect((await call("GET", "?limit=3")).body).toMatchObject({
    items: [{ job_id: JOB_ID }, { job_id: JOB_ID }],
    next_cursor: null,
  });
});

test("a redrive names the destination, and an unreadable letter is not redriven", async () => {
  const [late, unreadable] = await twoLetters();
  const sent = await call("POST", `/${late.id}/redrive`);
  expect(sent).toEqual({ status: 200, body: { id: late.id, instance_id: INSTANCE } });
  await lettersAre(1);
  expect((await call("POST", `/${late.id}/redrive`)).status).toBe(404);
  const refused = await call("POST", `/${unreadable.id}/redrive`);
  expect(refused).toMatchObject({ status: 409, body: { error: { code: "CONFLICT" } } });
});

test.each(["wait", "gone"] as const)("a redrive whose target is %s is refused", async (state) => {
  const [late] = await twoLetters();
  destination = state;
  expect((await call("POST", `/${late.id}/redrive`)).status).toBe(409);
  await lettersAre(2);
});

test("a redrive to a full inbox is INBOX_FULL", async () => {
  const [late] = await twoLetters();
  destination = { to: "elsewhere" };
  // Alive, or its inbox would be adopted while we fill it.
  await announcePresence(store, { instanceId: "elsewhere", bootId: JOB_ID }, 60_000);
  const bell = { kind: "x", job_id: JOB_ID, attempt_id: 1, deadline_ms: 0 };
  while ((await delivery.send("elsewhere", bell)).outcome === "sent");
  const refused = await call("POST", `/${late.id}/redrive`);
  expect(refused).toMatchObject({ status: 429, body: { error: { code: "INBOX_FULL" } } });
});

test("a letter is discarded once", async () => {
  const [late] = await twoLetters();
  expect(await call("DELETE", `/${late.id}`)).toEqual({ status: 204, body: "" });
  expect((await call("DELETE", `/${late.id}`)).status).toBe(404);
  expect((await call("DELETE", "/no-id")).status).toBe(400);
});
