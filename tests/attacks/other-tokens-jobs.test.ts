import { randomUUID } from "node:crypto";
import { Session } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import type { AttackedServer } from "./scene.ts";

let server: AttackedServer;
let victim: Session;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "viewer", role: "viewer" },
    { name: "session", role: "session" },
    { name: "session2", role: "session" },
    // The only session token of its tenant.
    { name: "badmin", role: "admin", tenant: "blue" },
    { name: "bsession", role: "session", tenant: "blue" },
  ]);
  victim = new Session({ url: server.url, token: server.secretOf("session") });
});
afterAll(async () => {
  await victim.close();
  await server.stop();
});

const codeOf = ({ body }: { body: unknown }) =>
  (body as { error?: { code: string } }).error?.code ?? "OK";
const itemsOf = ({ body }: { body: unknown }) =>
  (body as { items: Record<string, unknown>[] }).items;
const idsOf = async (as: string, path = "/api/v1/jobs") =>
  itemsOf(await server.as(as, "GET", path)).map(({ job_id }) => job_id);

/** A job is listed a moment after it is accepted. */
async function untilListed(as: string, jobs: string[]): Promise<void> {
  const wanted = jobs.toSorted().join();
  const what = `the list of ${as}`;
  await until(async () => (await idsOf(as)).toSorted().join() === wanted, { what });
}

async function submit(as: string): Promise<string> {
  const body = { request_id: randomUUID(), pool: "unserved", payload: 1, pending_ms: 600_000 };
  const answer = await server.as(as, "POST", "/api/v1/jobs", body);
  expect(answer.status).toBe(202);
  return (answer.body as { job_id: string }).job_id;
}

test("a session token neither sees nor cancels what another token submitted", async () => {
  const overHttp = await submit("session");
  const turn = victim.turn();
  const request_id = randomUUID();
  const job = turn.submit({
    requestId: request_id,
    pool: "unserved",
    payload: 1,
    pendingMs: 600_000,
  });
  job.catch(() => {}); // it is cancelled
  const found = () => idsOf("viewer", `/api/v1/jobs?request_id=${request_id}`);
  await until(async () => (await found()).length === 1, { what: "the job of the socket" });
  const [overSocket] = (await found()) as [string];
  await untilListed("viewer", [overHttp, overSocket]);
  const sessions = itemsOf(await server.as("session", "GET", "/api/v1/sessions"));
  await until(() => turn.id !== undefined, { what: "the turn" });
  const stolen = {
    jobs: await idsOf("session2"),
    byRequest: await idsOf("session2", `/api/v1/jobs?request_id=${request_id}`),
    read: codeOf(await server.as("session2", "GET", `/api/v1/jobs/${overHttp}`)),
    cancelled: [
      codeOf(await server.as("session2", "POST", `/api/v1/jobs/${overHttp}/cancel`, {})),
      codeOf(await server.as("session2", "POST", `/api/v1/jobs/${overSocket}/cancel`, {})),
    ],
    sessions: itemsOf(await server.as("session2", "GET", "/api/v1/sessions")).length,
    turn: codeOf(await server.as("session2", "GET", `/api/v1/turns/${turn.id}`)),
  };
  expect(stolen).toEqual({
    ...{ jobs: [], byRequest: [], read: "NOT_FOUND", sessions: 0, turn: "NOT_FOUND" },
    cancelled: ["NOT_FOUND", "NOT_FOUND"],
  });
  // Its own it sees, over HTTP also what it submitted on a socket.
  expect(sessions).toHaveLength(1);
  expect(Object.keys(sessions[0]!)).not.toContain("token");
  await untilListed("session", [overHttp, overSocket]);
  expect((await server.as("session", "GET", `/api/v1/turns/${turn.id}`)).status).toBe(200);
  for (const jobId of [overHttp, overSocket]) {
    const ended = await server.as("session", "POST", `/api/v1/jobs/${jobId}/cancel`, {});
    expect([ended.status, (ended.body as { outcome?: string }).outcome]).toEqual([
      200,
      "cancelled",
    ]);
  }
});

test("the only session token of a tenant sees all of it, as before", async () => {
  const jobs = [await submit("badmin"), await submit("bsession")];
  await untilListed("bsession", jobs);
  const cancelled = await server.as("bsession", "POST", `/api/v1/jobs/${jobs[0]}/cancel`, {});
  expect(cancelled.status).toBe(200);
});
