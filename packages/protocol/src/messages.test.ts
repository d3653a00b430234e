import { describe, expect, test } from "vitest";
import * as z from "zod";
import { encodeBase58 } from "./base58.ts";
import { CallResponse, NODE_CALLS, SERVER_CALLS } from "./calls.ts";
import { challengeText, NodeToServer, ServerToNode } from "./node-messages.ts";
import { ServerToSession, SessionToServer } from "./session-messages.ts";

const id = "0190f3a8-7b7e-7c3d-9a55-2f1b3c4d5e6f";
const session_id = "0123456789abcdef0123456789abcdef";
const token = "abcdefghijklmnop_-0123";
const address = encodeBase58(new Uint8Array(32).fill(7));
const at = "2026-01-31T12:00:00.000Z";
const job = { job_id: id, attempt_id: 1 };
const member = {
  address,
  name: "alpha",
  instance_id: "a",
  epoch: 3,
  claim_policy: "none",
  labels: { zone: "eu" },
  trusted_package_regexp: "",
  custom_command: false,
  draining: false,
  tags: { node_unit: "true" },
  joined_at: at,
};
const goAway = { type: "go_away", reason: "stopping", retry_after_ms: 5, urls: ["ws://b"] };
const error = {
  type: "error",
  code: "RATE_LIMITED",
  message: "slower",
  retryable: true,
  retry_after_ms: 5,
  request_id: "r",
  job_id: id,
};
const selection = { deployment_id: id, lines: 5, file: 1, from: "12" };

interface Message {
  type: string;
  [field: string]: unknown;
}

/** One whole example of every message, with every optional field. */
const EXAMPLES: Record<string, { schema: z.ZodType; messages: Message[] }> = {
  "session to server": {
    schema: SessionToServer,
    messages: [
      {
        type: "session_init",
        protocol_version: 1,
        token,
        session_id,
        resume_token: token,
        turn_pause_ms: 9,
      },
      {
        type: "job_submit",
        request_id: "r",
        pool: "p",
        payload: null,
        turn: true,
        finalize: "manual",
        service: "s",
        priority: 9,
        timeout_ms: 1,
        pending_ms: 3_600_000,
        trace_id: "t",
        updates: true,
        acks: [{ ...job, outcome: "failed" }],
      },
      { type: "job_watch", request_id: "r", job_id: id },
      { type: "job_result_ack", job_id: id },
      { type: "acks", acks: [{ ...job, outcome: "succeeded" }] },
      { type: "turn_finalize", reason: "timeout", request_id: "r" },
      { type: "job_cancel", job_id: id },
      { type: "session_ping" },
      { type: "session_close" },
    ],
  },
  "server to session": {
    schema: ServerToSession,
    messages: [
      {
        type: "session_init_ack",
        session_id,
        resume_token: token,
        instance_id: "a",
        protocol_version: 1,
        session_ping: true,
        features: ["updates_on_request"],
      },
      { type: "job_accepted", request_id: "r", job_id: id, turn_id: id, duplicate: false },
      { type: "job_update", ...job, state: "RUNNING", node_id: address },
      { type: "job_progress", ...job, body: [1] },
      {
        type: "job_result",
        ...job,
        request_id: "r",
        node_id: address,
        turn_id: id,
        success: true,
        outcome: "succeeded",
        body: {},
        error: { code: "E", message: "m" },
      },
      { type: "turn_finalized", turn_id: id, reason: "manual" },
      { type: "session_pong" },
      goAway,
      error,
    ],
  },
  "node to server": {
    schema: NodeToServer,
    messages: [
      {
        type: "node_register",
        protocol_version: 1,
        address,
        boot_id: id,
        signature: "AAAA",
        token,
        name: "alpha",
        version: "0.1.0",
        tags: { node_unit: true },
        labels: { zone: "eu" },
        pools: ["p"],
        services: ["s"],
        capacity: 4,
        running: [job],
        claim_policy: "none",
        trusted_package_regexp: "^x@",
        custom_command: true,
        features: ["ack_lists"],
      },
      {
        type: "node_heartbeat",
        seq: 1,
        running: [job],
        resource_usage: { cpu_percent: 1.5, memory_percent: 2, memory_mb: 3 },
        services: ["s"],
        draining: true,
      },
      { type: "job_ack", ...job },
      { type: "job_started", ...job, accepted_ms_ago: 1, started_ms_ago: 0 },
      { type: "job_progress", ...job, body: "half" },
      {
        type: "job_result",
        ...job,
        success: false,
        body: 1,
        error: { code: "E", message: "m", retryable: true, service: "s" },
        accepted_ms_ago: 2,
        started_ms_ago: 1,
      },
      { type: "request", id: 1, method: "member.list", params: {} },
      { type: "request", id: "c-2", method: "deployment.list", params: { revision: "a:1" } },
      { type: "request", id: 3, method: "deployment.release", params: { addresses: [address] } },
      {
        type: "request",
        id: 4,
        method: "deployment.claim",
        params: { candidates: [{ id, generation: 0 }] },
      },
      {
        type: "request",
        id: 4,
        method: "deployment.reserve",
        params: { candidates: [{ id, generation: 3 }] },
      },
      {
        type: "request",
        id: 5,
        method: "deployment.report",
        params: {
          deployment_id: id,
          generation: 1,
          state: "running",
          pid: 7,
          restarts: 0,
          exit_code: null,
          signal: null,
          last_error: null,
          spec_hash: "h",
          started_at: at,
        },
      },
      { type: "request", id: 6, method: "deployment.secrets", params: { id, generation: 1 } },
      { type: "response", id: 1, result: { lines: [] } },
      { type: "log_chunk", id: 1, lines: ["one"], next: "4" },
    ],
  },
  "server to node": {
    schema: ServerToNode,
    messages: [
      { type: "node_challenge", nonce: token, server_id: "a" },
      {
        type: "node_register_ack",
        node_id: address,
        instance_id: "a",
        epoch: 1,
        heartbeat_interval_ms: 5000,
        protocol_version: 1,
        features: ["ack_lists"],
      },
      { type: "node_heartbeat_ack", seq: 1, presence_ok: true, epoch: 1 },
      {
        type: "job_assign",
        ...job,
        request_id: "r",
        session_id,
        turn_id: id,
        pool: "p",
        payload: { a: 1 },
        timeout_ms: 30_000,
        trace_id: "t",
        acks: [{ ...job, outcome: "duplicate" }],
      },
      { type: "job_cancel", ...job, reason: "asked" },
      { type: "job_result_ack", ...job, outcome: "stale" },
      { type: "acks", acks: [{ ...job, outcome: "applied" }] },
      {
        type: "host_event",
        seq: 1,
        event: "INIT",
        view: "settling",
        members: [member],
        new: member,
        old: member,
      },
      { type: "deployments_changed", revision: "a:2" },
      { type: "node_control", command: "drain" },
      { type: "request", id: 1, method: "log.read", params: selection },
      { type: "request", id: 2, method: "log.follow", params: selection },
      { type: "request", id: 3, method: "log.stop", params: { id: 2 } },
      { type: "request", id: 4, method: "deployment.restart", params: { deployment_id: id } },
      {
        type: "response",
        id: 1,
        error: { code: "E", message: "m", retryable: false, details: {} },
      },
      goAway,
      error,
    ],
  },
};

const cases = Object.entries(EXAMPLES).flatMap(([direction, { schema, messages }]) =>
  messages.map((message) => ({
    direction,
    schema,
    message,
    name: [message.type, message.method].filter(Boolean).join(" "),
  })),
);

/** These hold any JSON, so no value of theirs is wrong. */
const ANY_JSON = ["payload", "body", "result"];

describe.each(cases)("$direction: $name", ({ schema, message }) => {
  const accepts = (value: unknown) => schema.safeParse(value).success;

  test("is read as it was sent", () => {
    expect(schema.parse(JSON.parse(JSON.stringify(message)))).toEqual(message);
  });

  test("loses its unknown fields, also those named like a prototype", () => {
    const frame = JSON.stringify(message).replace(/^{/, '{"mood":1,"__proto__":{"polluted":1},');
    const parsed = schema.parse(JSON.parse(frame)) as Message;
    expect(parsed).toEqual(message);
    expect(parsed.polluted).toBeUndefined();
  });

  test("is refused when a known field is wrong", () => {
    for (const field of Object.keys(message).filter((name) => !ANY_JSON.includes(name))) {
      expect(accepts({ ...message, [field]: null }), field).toBe(false);
      expect(accepts({ ...message, [field]: () => "not even JSON" }), field).toBe(false);
    }
  });

  test("is refused under an unknown type", () => {
    expect(accepts({ ...message, type: "job_unheard_of" })).toBe(false);
  });
});

test("every message and method has its example above", () => {
  for (const { schema, messages } of Object.values(EXAMPLES)) {
    const existing = z.toJSONSchema(schema, { io: "input" });
    const types = JSON.stringify(existing).matchAll(/"type":\{"type":"string","const":"(\w+)"\}/g);
    const shown = new Set(messages.map((message) => message.type));
    expect(new Set(Array.from(types, (match) => match[1]))).toEqual(shown);
  }
  const methods = cases.flatMap(({ message }) => message.method ?? []);
  expect(methods).toEqual([...Object.keys(NODE_CALLS), ...Object.keys(SERVER_CALLS)]);
});

describe("limits and rules", () => {
  const submit = { type: "job_submit", request_id: "r", pool: "p", payload: 1 };
  const accepts = (schema: z.ZodType, value: unknown) => schema.safeParse(value).success;

  test("the payload of a job is required, and may be null", () => {
    const { payload: _, ...without } = submit;
    expect(accepts(SessionToServer, without)).toBe(false);
    expect(accepts(SessionToServer, { ...submit, payload: null })).toBe(true);
  });

  test.each([
    ["a brace in the request id", { request_id: "{r}" }],
    ["a long request id", { request_id: "r".repeat(129) }],
    ["an empty pool", { pool: "" }],
    ["a priority of 10", { priority: 10 }],
    ["a time limit of 0", { timeout_ms: 0 }],
    ["no time to wait", { pending_ms: 0 }],
    ["more than an hour to wait", { pending_ms: 3_600_001 }],
    ["an unknown way to finalize", { finalize: "max_duration" }],
  ])("a job with %s is refused", (_, change) => {
    expect(accepts(SessionToServer, { ...submit, ...change })).toBe(false);
  });

  test("another protocol version is a message all the same, so that it gets its own error", () => {
    expect(accepts(SessionToServer, { type: "session_init", protocol_version: 99 })).toBe(true);
  });

  test("a claim names at least one candidate and at most 64", () => {
    const claim = (count: number) => ({
      type: "request",
      id: 1,
      method: "deployment.claim",
      params: { candidates: new Array(count).fill({ id, generation: 1 }) },
    });
    expect([0, 1, 64, 65].map((count) => accepts(NodeToServer, claim(count)))).toEqual([
      false,
      true,
      true,
      false,
    ]);
  });

  test("an unknown method is refused, and so are the parameters of another", () => {
    const request = { type: "request", id: 1, params: {} };
    expect(accepts(NodeToServer, { ...request, method: "deployment.drop" })).toBe(false);
    expect(accepts(NodeToServer, { ...request, method: "log.read" })).toBe(false);
    expect(accepts(NodeToServer, { ...request, method: "deployment.claim" })).toBe(false);
  });

  test("a response is a result, an error, or a bare yes, but not both", () => {
    const failure = { code: "FENCED", message: "m", retryable: false };
    const response = { type: "response", id: 1 };
    expect(accepts(CallResponse, response)).toBe(true);
    expect(accepts(CallResponse, { ...response, error: failure })).toBe(true);
    expect(accepts(CallResponse, { ...response, result: 1, error: failure })).toBe(false);
  });

  test("a node that writes its policy in capitals still has it", () => {
    const register = cases.find(({ name }) => name === "node_register")?.message;
    expect(NodeToServer.parse({ ...register, claim_policy: "NONE" })).toMatchObject({
      claim_policy: "none",
    });
  });

  test("what a node signs names server, challenge, address and boot", () => {
    expect(challengeText({ server_id: "s", nonce: "n", address: "a", boot_id: "b" })).toBe(
      "tenure-node-v1:s:n:a:b",
    );
  });
});
