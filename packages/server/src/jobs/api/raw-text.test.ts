import { hash, randomUUID } from "node:crypto";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type WebSocket from "ws";
import { HOT_STORES, openTestPeer } from "../../../testing/hot-stores.ts";
import { type JobFleet, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";
import { readBinding } from "../store/binding-store.ts";

/** Values that parsing and writing again would change, or that must not be taken for anything but data. */
const TEXTS = [
  "9007199254740993",
  "12345678901234567890",
  "1e400",
  "-0",
  "1.0",
  "null",
  '{"a":1,"a":2}',
  '{ "spaced" : [ 1 ,\n\t2 ] }',
  '"\\u00e9\\ud800\\/\\"}"',
  '"日本語 😀 \u2028"',
  '{"2":"b","1":"a"}',
  '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}',
  `[${"9007199254740993, ".repeat(10_000)}0]`,
];

/** The frames of a socket as the text they came as. */
function framesOf(socket: WebSocket): (fits: (frame: string) => boolean) => Promise<string> {
  const frames: string[] = [];
  socket.on("message", (data) => frames.push(data.toString()));
  return (fits) => until(() => frames.find(fits), { what: "a frame" });
}

const frameOf =
  (type: string, jobId: string) =>
  (frame: string): boolean =>
    frame.includes(`"type":"${type}"`) && frame.includes(`"job_id":"${jobId}"`);

const LIMIT_BYTES = 262_144;

let fleet: JobFleet;
/** The session's and HTTP's instance, and the node's: two wherever there can be two. */
let here: App;
let there: App;

async function post(text: string, { path = "/jobs", type = "application/json" } = {}) {
  const headers = { "content-type": type };
  const url = new URL(`/api/v1${path}`, here.url);
  const response = await fetch(url, { method: "POST", headers, body: text });
  return { status: response.status, text: await response.text() };
}

const jobOf = (text: string) => JSON.parse(text) as { job_id: string; error?: { code: string } };
const codeOf = (text: string) => jobOf(text).error?.code;

describe.each(HOT_STORES)("payloads and results on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind, { instances: kind === "memory" ? 1 : 2 });
    here = fleet.apps[0]!;
    there = fleet.apps.at(-1)!;
  });
  afterEach(() => fleet.rest());
  afterAll(() => fleet.stop());

  /** A node that sends back, as progress and as its result, exactly the text it got. */
  async function echo() {
    const node = await fleet.node(there, { capacity: 4 });
    const assigned = framesOf(node.socket);
    /** Resolves to the payload's text. Progress that comes together with the result is not sent on. */
    return async (jobId: string, onProgress = async () => {}): Promise<string> => {
      const frame = await assigned(frameOf("job_assign", jobId));
      const text = frame.slice(frame.indexOf('"payload":') + '"payload":'.length, -1);
      const about = `"job_id":"${jobId}","attempt_id":1`;
      node.send(`{"type":"job_ack",${about}}`);
      node.send(`{"type":"job_started",${about}}`);
      node.send(`{ "body" : ${text} , "type":"job_progress",${about}}`);
      await onProgress();
      node.send(`{"body":0,"type":"job_result",${about},"b\\u006fdy":${text}\n,"success":true}`);
      return text;
    };
  }

  test("travel from a session to a node and back as the text they came as", async () => {
    const answer = await echo();
    const client = await fleet.session(here);
    const frame = framesOf(client.socket);
    for (const text of TEXTS) {
      const request_id = randomUUID();
      const words = `"request_id":"${request_id}","pool":"${fleet.pool}"`;
      client.send(`{"payload":0,"type":"job_submit", "payload" : ${text} ,${words}}`);
      const { job_id } = await client.accepted({ request_id });
      const answered = await answer(job_id, async () => {
        const progress = await frame(frameOf("job_progress", job_id));
        expect(progress.slice(progress.indexOf(',"body":'))).toBe(`,"body":${text}}`);
      });
      expect(answered).toBe(text);
      const result = await frame(frameOf("job_result", job_id));
      expect(result.slice(result.indexOf(',"body":'))).toBe(`,"body":${text}}`);
      client.send({ type: "job_result_ack", job_id });
    }
    expect(({} as { admin?: unknown }).admin).toBeUndefined();
  });

  test("travel from an HTTP client to a node and back as the text they came as", async () => {
    const answer = await echo();
    for (const text of TEXTS) {
      const body = `\ufeff{ "payload" : ${text} , "pool":"${fleet.pool}","request_id":"${randomUUID()}"}`;
      const { job_id } = jobOf(
        (await post(body, { type: "application/json; charset=utf-8" })).text,
      );
      expect(await answer(job_id)).toBe(text);
      const waited = await post(body, { path: "/jobs?wait_ms=10000" });
      expect(waited.status).toBe(200);
      expect(waited.text).toContain(`,"body":${text}}`);
      const read = await fetch(new URL(`/api/v1/jobs/${job_id}`, there.url));
      expect(read.headers.get("content-type")).toBe("application/json; charset=utf-8");
      expect(await read.text()).toContain(`,"body":${text}}`);
      const cancelled = await post("", { path: `/jobs/${job_id}/cancel` });
      expect(cancelled.text).toContain(`,"body":${text}}`);
    }
    expect(({} as { admin?: unknown }).admin).toBeUndefined();
  });

  test("decide as text whether a request id is used for another request", async () => {
    const client = await fleet.session(here);
    const ask = (request_id: string, payload: string) =>
      client.send(
        `{"type":"job_submit","request_id":"${request_id}","pool":"idle","payload":${payload}}`,
      );
    for (const [first, same, other] of [
      ["9007199254740993", " 9007199254740993 ", "9007199254740992"],
      ['{"a": [1, "b c"]}', '{"a":[1,"b c"]}', '{"a":[1,"b  c"]}'],
      ['{"a":1,"a":2}', '{\n"a":1,\n"a":2\n}', '{"a":2}'],
    ] as const) {
      const request_id = randomUUID();
      ask(request_id, first);
      const { job_id } = await client.accepted({ request_id });
      ask(request_id, same);
      await until(
        () =>
          client.received.some(
            (message) =>
              message.type === "job_accepted" && message.job_id === job_id && message.duplicate,
          ),
        { what: "a duplicate" },
      );
      ask(request_id, other);
      expect(await client.error({ request_id })).toMatchObject({ code: "REQUEST_ID_REUSED" });
    }
  });

  test("are as long and as deep as their text, by socket and by HTTP", async () => {
    const client = await fleet.session(here);
    const deep = (depth: number) => `{"a":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)},"a":1}`;
    const spaced = (bytes: number) => `[${" ".repeat(bytes - 2)}]`;
    const cases = [
      [deep(256), undefined, undefined],
      [deep(257), "INVALID_MESSAGE", "INVALID_REQUEST"],
      [spaced(LIMIT_BYTES), undefined, undefined],
      [spaced(LIMIT_BYTES + 1), "PAYLOAD_TOO_LARGE", "PAYLOAD_TOO_LARGE"],
    ] as const;
    for (const [payload, bySocket, byHttp] of cases) {
      const request_id = randomUUID();
      const words = `"request_id":"${request_id}","pool":"idle","payload":${payload}`;
      expect(codeOf((await post(`{${words}}`)).text)).toBe(byHttp);
      client.send(`{"type":"job_submit",${words}}`);
      if (bySocket === undefined) await client.accepted({ request_id });
      else expect(await client.error({ request_id })).toMatchObject({ code: bySocket });
    }
  });

  test("are refused as before when they are no JSON, or where their keys would be used", async () => {
    const spec = `"request_id":"${randomUUID()}","pool":"idle"`;
    expect(await post(`{${spec},"payload":{"a":1,}}`)).toMatchObject({ status: 400 });
    expect(await post(`{${spec}}`)).toMatchObject({ status: 400 });
    expect((await post(`{${spec}}`)).text).toContain("payload: is required");
    expect(await post("")).toMatchObject({ status: 400 });
    expect(await post("null")).toMatchObject({ status: 400 });
    expect(await post(`{${spec},"payload":1}`, { type: "text/plain" })).toMatchObject({
      status: 400,
    });
    const env = '{"package_name":"a","package_version":"1.0.0","env":{"__proto__":{"A":"b"}}}';
    const refused = await post(env, { path: "/deployments" });
    expect(refused).toMatchObject({ status: 400 });
    expect(refused.text).toContain("not valid JSON");
  });
});

describe.each(["redis", "redis-cluster"] as const)("payloads of an SDK on %s", (kind) => {
  beforeAll(async () => {
    fleet = await openJobFleet(kind);
    here = fleet.apps[0]!;
  });
  afterAll(() => fleet.stop());

  test("have the hash that release 0.1.0 writes", async () => {
    const client = await fleet.session(here);
    const hot = await openTestPeer(kind, fleet.prefix);
    const payloads = [
      1,
      "a b",
      null,
      -0,
      1e21,
      5e-324,
      { b: [1.5, { "": "é\u2028\ud800" }], 1: true },
    ];
    for (const payload of payloads) {
      const request = client.submit({ payload, pool: "idle", priority: 3, timeout_ms: 5_000 });
      await client.accepted(request);
      const text = JSON.stringify(JSON.parse(JSON.stringify(payload)));
      const hashed = hash("sha256", `["idle",null,3,5000]${text}`, "base64url");
      const named = { tenant: "default", requestId: request.request_id };
      expect((await readBinding(hot, named))?.bodyHash).toBe(hashed);
    }
    await hot.close();
  });
});
