import { once } from "node:events";
import { type JobEvent, Session, Worker } from "@tenure/sdk";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { type AttackedServer, attackServer } from "./scene.ts";

const SETTINGS = `
[limits]
tenant_payload_bytes_max = 1_000_000
token_sessions_max = 5
`;

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServer(
    [
      { name: "node", role: "node" },
      { name: "session", role: "session" },
      { name: "session2", role: "session" },
      { name: "bsession", role: "session", tenant: "blue" },
    ],
    { settings: SETTINGS },
  );
});
afterAll(() => server.stop());

test("payloads of one tenant fill no more memory than its limit, whatever pools they name", async () => {
  const submit = async (as: string, k: number) => {
    const payload = "x".repeat(200_000);
    const body = { request_id: `${as}-${k}`, pool: `unserved-${k}`, payload, pending_ms: 600_000 };
    return server.as(as, "POST", "/api/v1/jobs", body);
  };
  // All at once: those that are being written down count too.
  const asked = await Promise.all(Array.from({ length: 20 }, (_, k) => submit("session", k)));
  const accepted = asked.filter(({ status }) => status === 202);
  const refused = asked.filter(({ status }) => status !== 202);
  expect({ accepted: accepted.length, refused: refused.length }).toEqual({
    accepted: expect.toSatisfy((count: number) => count >= 1 && count <= 4),
    refused: 20 - accepted.length,
  });
  for (const { body } of refused) expect(body).toMatchObject({ error: { code: "QUEUE_FULL" } });
  expect((await submit("bsession", 0)).status).toBe(202);
  for (const { body } of accepted) {
    const { job_id } = body as { job_id: string };
    await server.as("session", "POST", `/api/v1/jobs/${job_id}/cancel`, {});
  }
  expect((await submit("session", 100)).status).toBe(202);
});

/** Opens a session and answers what the server says first: `session_init_ack`, or an error and the close code. */
async function open(name: string) {
  const socket = new WebSocket(server.url.replace("http", "ws").concat("/ws/session"));
  await once(socket, "open");
  const closed = once(socket, "close").then(([code]) => code as number);
  const said = once(socket, "message").then(([data]) => JSON.parse(String(data)));
  const token = server.secretOf(name);
  socket.send(JSON.stringify({ type: "session_init", protocol_version: 1, token }));
  return { socket, closed, said: (await said) as { type: string; code?: string } };
}

test("a token that opens and drops sessions reaches its limit, and no other token feels it", async () => {
  const first = await open("session2");
  for (let k = 0; k < 4; k++) {
    const { socket, said, closed } = await open("session2");
    expect(said.type).toBe("session_init_ack");
    socket.terminate();
    await closed;
  }
  const refused = await open("session2");
  expect(refused.said).toMatchObject({ type: "error", code: "QUEUE_FULL", retryable: true });
  expect(await refused.closed).toBe(1013);
  const other = await open("bsession");
  expect(other.said.type).toBe("session_init_ack");
  other.socket.terminate();
  // The SDK waits, and is let in when one of the others has said goodbye.
  const losses: string[] = [];
  const patient = new Session({
    url: server.url,
    token: server.secretOf("session2"),
    on: { down: ({ error }) => losses.push(error?.code ?? "") },
  });
  await until(() => losses.includes("QUEUE_FULL"), { what: "the refusal of the SDK's session" });
  first.socket.send(JSON.stringify({ type: "session_close" }));
  await first.closed;
  await until(() => patient.state === "ready", { what: "the SDK's session to be let in" });
  await patient.close();
});

test("a progress body over result_bytes reaches no session, and its job goes on", async () => {
  const worker = new Worker({
    url: server.url,
    token: server.secretOf("node"),
    pools: ["progress"],
    capacity: 1,
    async run(_, { progress }) {
      progress("x".repeat(300_000));
      progress("small");
      return "done";
    },
  });
  const session = new Session({ url: server.url, token: server.secretOf("session") });
  try {
    const job = session.submit({ pool: "progress", payload: 1 });
    const lengths: number[] = [];
    for await (const event of job as AsyncIterable<JobEvent>)
      if (event.type === "job_progress") lengths.push(String(event.body).length);
    expect(await job).toMatchObject({ outcome: "succeeded", body: "done" });
    expect(lengths).toEqual(["small".length]);
  } finally {
    await Promise.all([session.close(), worker.close()]);
  }
});
