import { createHash, randomUUID } from "node:crypto";
import { connectRawSession, type RawSession } from "@tenure/testing/fleet/raw-session";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openAppDatabase } from "../../../testing/apps.ts";
import { startTestApp } from "../../../testing/test-app.ts";
import type { App } from "../../app.ts";

const TENANTS = ["acme", "globex"];
const toml = TENANTS.map(
  (tenant) => `[[auth.tokens]]
name = "${tenant}"
role = "session"
tenant = "${tenant}"
sha256 = "${createHash("sha256").update(`secret of ${tenant}`).digest("hex")}"`,
).join("\n");

let database: TestDatabase;
let app: App | undefined;
const sessions: RawSession[] = [];

async function start(env: Record<string, string>): Promise<void> {
  app = await startTestApp({ postgresUri: database.uri, toml, env });
}

/** There is no node: what is let in waits. */
async function client(tenant: string) {
  const raw = await connectRawSession({ url: app!.url });
  sessions.push(raw);
  await raw.init({ token: `secret of ${tenant}` });
  const submit = (words: object = {}): string => {
    const request_id = randomUUID();
    raw.send({ type: "job_submit", request_id, pool: "gpu", payload: null, ...words });
    return request_id;
  };
  const answer = (requestId: string) =>
    until(
      () =>
        raw.received.find(
          (message) =>
            (message.type === "job_accepted" || message.type === "error") &&
            message.request_id === requestId,
        ),
      { what: "an answer to the submit", deadlineMs: 60_000 },
    );
  return { raw, submit, answer };
}

describe("one tenant does not take the place of all others", () => {
  beforeAll(async () => {
    database = await openAppDatabase();
  });
  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
    await app?.stop();
  });
  afterAll(() => database.drop());

  test("with more open jobs than it may have", async () => {
    await start({
      TENURE_LIMITS_TENANT_JOBS_OPEN_MAX: "2",
      TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "600",
    });
    const [acme, globex] = [await client("acme"), await client("globex")];
    const first = await acme.answer(acme.submit());
    expect(first).toMatchObject({ type: "job_accepted" });
    expect(await acme.answer(acme.submit())).toMatchObject({ type: "job_accepted" });
    const refused = await acme.answer(acme.submit());
    expect(refused).toMatchObject({ type: "error", code: "QUEUE_FULL", retryable: true });
    expect(refused).toMatchObject({ message: expect.stringContaining("tenant acme") });
    expect(await globex.answer(globex.submit())).toMatchObject({ type: "job_accepted" });
    // One that ends makes room.
    acme.raw.send({ type: "job_cancel", job_id: (first as { job_id: string }).job_id });
    expect(await acme.raw.receive("job_result")).toMatchObject({ outcome: "cancelled" });
    expect(await acme.answer(acme.submit())).toMatchObject({ type: "job_accepted" });
  });

  test("with more different needs than it may wait with", async () => {
    await start({
      TENURE_LIMITS_TENANT_NEEDS_MAX: "3",
      TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "600",
    });
    const [acme, globex] = [await client("acme"), await client("globex")];
    // All at once: those that are still being written count too.
    const crowd = Array.from({ length: 20 }, (_, at) => acme.submit({ service: `service-${at}` }));
    const answers = [];
    for (const request of crowd) answers.push(await acme.answer(request));
    expect(answers.filter(({ type }) => type === "job_accepted")).toHaveLength(3);
    const refused = { type: "error", code: "QUEUE_FULL", retryable: true };
    expect(answers[3]).toMatchObject({
      ...refused,
      message: expect.stringContaining("different needs of tenant acme"),
    });
    expect(await acme.answer(acme.submit({ turn: true }))).toMatchObject(refused);
    expect(await acme.answer(acme.submit({ pool: "other" }))).toMatchObject(refused);
    // A need that it waits with already is none more, and another tenant is not concerned.
    const accepted = { type: "job_accepted" };
    expect(await acme.answer(acme.submit({ service: "service-1" }))).toMatchObject(accepted);
    expect(await globex.answer(globex.submit({ service: "x" }))).toMatchObject(accepted);
  });

  test("with more submits than it may make in a second", async () => {
    const perSecondMax = 5;
    await start({ TENURE_LIMITS_TENANT_SUBMITS_PER_SECOND_MAX: String(perSecondMax) });
    const [acme, globex] = [await client("acme"), await client("globex")];
    const startedMs = performance.now();
    const requests = Array.from({ length: 200 }, () => acme.submit());
    expect(await globex.answer(globex.submit())).toMatchObject({ type: "job_accepted" });
    const answers = [];
    for (const request of requests) answers.push(await acme.answer(request));
    const seconds = (performance.now() - startedMs) / 1_000;
    const refused = answers.filter((answer) => answer.type === "error");
    const accepted = answers.length - refused.length;
    expect(accepted).toBeGreaterThanOrEqual(perSecondMax);
    // However slow this went: so many in each second that it touched.
    expect(accepted).toBeLessThanOrEqual(perSecondMax * (Math.ceil(seconds) + 1));
    for (const refusal of refused) {
      expect(refusal).toMatchObject({ code: "RATE_LIMITED", retryable: true });
      expect(refusal.retry_after_ms).toBeGreaterThanOrEqual(1);
      expect(refusal.retry_after_ms).toBeLessThanOrEqual(1_000);
    }
  });
});
