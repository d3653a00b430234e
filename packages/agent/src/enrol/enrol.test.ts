import { mkdirSync, readFileSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { NodeEnrol } from "@tenure/protocol";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, onTestFinished, test } from "vitest";
import type { AgentLogLine } from "../log.ts";
import { type EnrolOptions, nodeToken } from "./enrol.ts";

const ADDRESS = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin";
const ENROLLED = { token_id: "018f0000-0000-7000-8000-000000000000", tenant: "default" };

type Answer = (body: NodeEnrol, response: ServerResponse, request: IncomingMessage) => void;

/** A fake server that answers enrolments, and what an agent needs to call it. */
async function scene(answer: Answer) {
  const bodies: NodeEnrol[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => {
      text += part;
    });
    request.on("end", () => {
      bodies.push(JSON.parse(text));
      answer(bodies.at(-1)!, response, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const data_dir = join(scratchDirectory("enrol"), "data");
  const lines: AgentLogLine[] = [];
  type Config = Partial<Record<"join_token" | "host_token", string | undefined>>;
  const start = (config: Config = {}, signal?: AbortSignal) =>
    nodeToken({
      config: {
        ...({ data_dir, join_token: "tnrj_one", ...config } as EnrolOptions["config"]),
        host_urls: [`http://127.0.0.1:${(server.address() as AddressInfo).port}`],
      },
      identity: { address: ADDRESS, sign: async (bytes) => bytes },
      log: (line) => void lines.push(line),
      sleep: async () => {},
      signal,
    });
  return { start, bodies, lines, data_dir };
}

const accept = (response: ServerResponse, more = {}) =>
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(JSON.stringify({ ...ENROLLED, ...more }));

function refuse(response: ServerResponse, status: number, code: string): void {
  const error = { code, message: code, retryable: false, details: { address: "x", reason: code } };
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ error }));
}

test("a node keeps the secret it made, for itself alone, and does not enrol again", async () => {
  const { start, bodies, data_dir } = await scene((_, response) =>
    accept(response, { node_name: "web-1" }),
  );
  const first = await start();
  expect(first).toMatchObject({ name: "web-1" });
  expect(first.token).toMatch(/^tnr_[A-Za-z0-9_-]{43}$/);
  expect(JSON.stringify(bodies)).not.toContain(first.token);
  const path = join(data_dir, "node.token");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readFileSync(path, "utf8")).not.toContain("tnrj_one");
  expect(await start()).toEqual(first);
  expect(await start({ join_token: undefined })).toEqual(first);
  expect(bodies).toHaveLength(1);
});

test("a lost answer and a restart repeat the same request", async () => {
  let isLost = true;
  const { start, bodies, lines } = await scene((_, response, request) =>
    isLost ? request.socket.destroy() : accept(response),
  );
  const stopping = new AbortController();
  const first = start({}, stopping.signal);
  while (bodies.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
  stopping.abort();
  await expect(first).rejects.toBe(stopping.signal.reason);
  expect(lines.map(({ event }) => event)).toEqual(["join.waiting"]);
  isLost = false;
  await start();
  expect(new Set(bodies.map((body) => JSON.stringify(body))).size).toBe(1);
});

test("a refused join token ends the start, or leaves the stored token in use", async () => {
  let code: string | undefined = "JOIN_TOKEN_USED";
  const { start, lines } = await scene((_, response) =>
    code ? refuse(response, 409, code) : accept(response),
  );
  await expect(start()).rejects.toMatchObject({ code: "JOIN_TOKEN_USED" });
  code = undefined;
  const stored = await start();
  code = "UNAUTHENTICATED";
  expect(await start({ join_token: "tnrj_another" })).toEqual(stored);
  expect(lines.at(-1)).toMatchObject({ event: "join.refused", level: "warn" });
  // The next one that is good replaces the token.
  code = undefined;
  expect((await start({ join_token: "tnrj_another" })).token).not.toBe(stored.token);
});

test("without a join token the settings decide", async () => {
  const { start, data_dir, bodies } = await scene((_, response) => accept(response));
  mkdirSync(data_dir, { recursive: true });
  expect(await start({ join_token: undefined })).toEqual({ token: undefined, name: undefined });
  expect(await start({ join_token: undefined, host_token: "t" })).toEqual({ token: "t" });
  expect(bodies).toEqual([]);
});
