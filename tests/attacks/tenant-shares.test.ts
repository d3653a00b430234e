import { createHash } from "node:crypto";
import type { Job, SessionView } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { connectRawSession, type RawSession } from "@tenure/testing/fleet/raw-session";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { joinNode } from "./raw-unit.ts";
import { type AttackedServer, type AttackToken, attackServer } from "./scene.ts";

// The tokens of one tenant must not use up what all tenants share, nor count what the others have.

const QUEUE_MAX = 5;
const ENDED_MAX = 40;
const SETTINGS = `
[jobs]
queue_max = ${QUEUE_MAX}
ended_max = ${ENDED_MAX}
[limits]
token_sessions_max = 4
`;
/** The secret of blue's token that has the name of one of default's. */
const secretOfBlue = (name: string) => `${name}-of-blue-secret-of-an-attack`;
const sameName = (token: AttackToken): AttackToken => ({
  ...token,
  tenant: "blue",
  scope: {
    ...token.scope,
    sha256: createHash("sha256").update(secretOfBlue(token.name)).digest("hex"),
  },
});
const app: AttackToken = { name: "app", role: "session" };
const fleet: AttackToken = { name: "fleet", role: "node", scope: { nodes_max: 1 } };
const TOKENS: AttackToken[] = [
  { name: "admin", role: "admin" },
  { name: "node", role: "node" },
  { name: "session", role: "session" },
  { name: "blue-session", role: "session", tenant: "blue" },
  { name: "blue-node", role: "node", tenant: "blue" },
  ...[app, fleet].flatMap((token) => [token, sameName(token)]),
];

let server: AttackedServer;
const nodes: RawNode[] = [];
const sessions: RawSession[] = [];
beforeAll(async () => {
  server = await attackServer(TOKENS, { settings: SETTINGS });
});
afterEach(async () => {
  await Promise.all([...nodes.splice(0), ...sessions.splice(0)].map((one) => one.close()));
});
afterAll(() => server.stop());

let requests = 0;
async function submit(as: string, words: object = {}) {
  const request_id = `${as}-${++requests}`;
  const body = { request_id, pool: "work", payload: 1, pending_ms: 600_000, ...words };
  const answer = await server.as(as, "POST", "/api/v1/jobs", body);
  return { status: answer.status, text: JSON.stringify(answer.body), job: answer.body as Job };
}

async function join(token: string, as: object): Promise<RawNode> {
  const node = await connectRawNode({ url: server.url });
  nodes.push(node);
  const worker = { pools: ["work"], capacity: 100, tags: {} };
  await node.register({ token: server.secretOf(token), name: token, ...worker, ...as });
  return node;
}

async function session(token: string): Promise<{ raw: RawSession; sessionId: string }> {
  const raw = await connectRawSession({ url: server.url });
  sessions.push(raw);
  const refused = raw.closed.then(() => Promise.reject(new Error(JSON.stringify(raw.received))));
  refused.catch(() => {});
  const joined = await Promise.race([raw.init({ token }), refused]);
  return { raw, sessionId: joined.session_id };
}

const assigned = (node: RawNode, { job_id }: Job) =>
  node.receive("job_assign", (message) => message.job_id === job_id);
const cancel = (as: string, { job_id }: Job) =>
  server.as(as, "POST", `/api/v1/jobs/${job_id}/cancel`, {});

test("a tenant that fills its queue of a pool keeps no other tenant out, nor its own jobs from free nodes", async () => {
  const own = await join("node", {});
  const waiting = [];
  for (let k = 0; k < QUEUE_MAX; k++) waiting.push(await submit("blue-session", { service: "a" }));
  expect(waiting.map(({ status }) => status)).toEqual(waiting.map(() => 202));
  const refused = await submit("blue-session", { service: "a" });
  expect(refused).toMatchObject({ status: 429, text: expect.stringContaining("pool work") });
  const other = await submit("session");
  expect(other.status).toBe(202);
  expect(await assigned(own, other.job)).toMatchObject({ payload: 1 });
  const blue = await join("blue-node", { services: ["b"] });
  const fits = await until(
    async () => {
      const asked = await submit("blue-session", { service: "b" });
      return asked.status === 202 && asked;
    },
    { what: "a job that fits the free node, once the server sees the node" },
  );
  await assigned(blue, fits.job);
  expect((await submit("blue-session", { service: "a" })).status).toBe(429);
  for (const { job } of [...waiting, fits]) await cancel("blue-session", job);
  await cancel("session", other.job);
});

test("tokens of two tenants with one name have limits of their own", async () => {
  for (let k = 0; k < 4; k++) await session(server.secretOf("app"));
  await expect(session(server.secretOf("app"))).rejects.toThrow("QUEUE_FULL");
  await session(secretOfBlue("app"));
  const first = await joinNode(server, "fleet", {});
  nodes.push(first);
  await expect(joinNode(server, "fleet", {})).rejects.toThrow("FORBIDDEN");
  nodes.push(await joinNode(server, "fleet", { token: secretOfBlue("fleet") }));
});

test("a node that names a waiting job of another tenant neither ends nor fails its attempt", async () => {
  const { job } = await submit("session", { pool: "unserved" });
  const blue = await join("blue-node", {});
  const about = { type: "job_result", job_id: job.job_id, attempt_id: 1 };
  const error = { code: "FAILED", message: "no", retryable: true };
  blue.send({ ...about, success: false, error });
  expect(await blue.receive("job_result_ack")).toMatchObject({ outcome: "stale" });
  blue.send({ ...about, success: true, body: "forged" });
  await blue.receive("job_result_ack", () => blue.count("job_result_ack") === 2);
  const read = await server.as("admin", "GET", `/api/v1/jobs/${job.job_id}`);
  expect(read.body).toMatchObject({ state: "CREATED", attempt_id: 1 });
  await cancel("session", job);
});

test("a list of sessions counts none of other tenants, and their ids look like none", async () => {
  const { sessionId } = await session(server.secretOf("blue-session"));
  const others = [];
  for (let k = 0; k < 3; k++) others.push(await session(server.secretOf("session")));
  const list = async (as: string, cursor?: string) => {
    const path = `/api/v1/sessions?limit=1&online=true${cursor ? `&cursor=${cursor}` : ""}`;
    return server.as(as, "GET", path);
  };
  const listed = (await list("blue-session")).body as { items: SessionView[] };
  expect(listed).toMatchObject({ items: [{ session_id: sessionId }], next_cursor: null });
  const seen: string[] = [];
  for (let cursor: string | undefined; seen.length < 10; ) {
    const page = (await list("session", cursor)).body as typeof listed & { next_cursor: string };
    seen.push(...page.items.map(({ session_id }) => session_id));
    if (!page.next_cursor) break;
    cursor = page.next_cursor;
  }
  expect(seen.sort()).toEqual(others.map((other) => other.sessionId).sort());
  expect((await list("blue-session", "1")).status).toBe(400);
  const thief = await connectRawSession({ url: server.url });
  sessions.push(thief);
  const foreign = others[0]!.sessionId;
  const words = { session_id: foreign, resume_token: "x".repeat(43) };
  const ack = await thief.init({ token: server.secretOf("blue-session"), ...words });
  expect(ack.session_id).not.toBe(foreign);
});

// The last: ended jobs stay.
test("a tenant that fills the store of ended jobs keeps no other tenant out", async () => {
  let refusal: { status: number; text: string } | undefined;
  let ended = 0;
  for (; !refusal && ended < 2 * ENDED_MAX; ended++) {
    const { status, text, job } = await submit("blue-session");
    if (status === 202) await cancel("blue-session", job);
    else refusal = { status, text };
  }
  expect(refusal).toMatchObject({ status: 429, text: expect.stringContaining("ended jobs") });
  expect(ended).toBeGreaterThan(ENDED_MAX / 2);
  expect(ended).toBeLessThan(ENDED_MAX);
  const other = await submit("session");
  expect(other.status).toBe(202);
  await cancel("session", other.job);
  expect((await submit("blue-session")).status).toBe(429);
});
