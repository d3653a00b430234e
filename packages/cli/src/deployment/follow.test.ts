import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { TenureError, toErrorBody } from "@tenure/protocol";
import { createAdmin } from "@tenure/sdk";
import { expect, onTestFinished, test } from "vitest";
import { followLog } from "./follow.ts";

const VIEW = {
  ...{ id: "0193f0a0-0000-7000-8000-000000000000", name: "web", package_name: "" },
  ...{ package_version: "", command: "true", args: [], env: {}, type: "deployment" },
  ...{ enabled: true, selector: {}, lost_after_ms: 0, generation: 1, revision: 1, status: [] },
  ...{ created_at: "2026-11-17T00:00:00.000Z", updated_at: "2026-11-17T00:00:00.000Z" },
};

/** A server with one deployment, whose owner the test moves and whose logs the test writes. */
async function fleet() {
  let owner: string | undefined = "alpha";
  const open: { node: string; from: string | null; response: ServerResponse }[] = [];
  const opened: (() => void)[] = [];
  const notFound = toErrorBody(new TenureError("NOT_FOUND", { what: "deployment", id: "web" }));
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://server");
    if (owner === undefined || !pathname.endsWith("/logs")) {
      const body = owner === undefined ? notFound : { ...VIEW, address: owner };
      response.writeHead(owner === undefined ? 404 : 200, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" }).write(": following\n\n");
    open.push({ node: searchParams.get("node") ?? "", from: searchParams.get("from"), response });
    for (const tell of opened.splice(0)) tell();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const ending = new AbortController();
  onTestFinished(() => {
    ending.abort();
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const moves: (string | undefined)[] = [];
  const lines = followLog({
    ...{ admin: createAdmin({ url }), url, token: undefined, id: "web", query: {} },
    ...{ signal: ending.signal, pollEveryMs: 20, onMove: (node) => moves.push(node) },
  });
  return {
    lines,
    moves,
    moveTo: (node: string | undefined) => {
      owner = node;
    },
    /** The n-th log that was opened, once it is. */
    async log(n: number) {
      while (open.length < n) await new Promise<void>((resolve) => opened.push(resolve));
      const { node, from, response } = open[n - 1]!;
      const write = (text: string, next: string) =>
        response.write(`data: ${JSON.stringify({ lines: [text], next })}\n\n`);
      return { node, from, write, response };
    },
  };
}

test("a log whose node left goes on at the next owner", async () => {
  const { lines, moves, moveTo, log } = await fleet();
  const first = lines.next();
  const alpha = await log(1);
  alpha.write("by alpha", "a1");
  expect((await first).value).toEqual(["by alpha"]);
  const second = lines.next();
  moveTo("bravo");
  alpha.response.end("event: end\ndata: {}\n\n");
  const bravo = await log(2);
  expect(bravo).toMatchObject({ node: "bravo", from: null });
  bravo.write("by bravo", "b1");
  expect((await second).value).toEqual(["by bravo"]);
  expect(moves.at(-1)).toBe("bravo");
});

test("a log is left for that of the next owner although the former node stays connected", async () => {
  const { lines, moves, moveTo, log } = await fleet();
  const first = lines.next();
  await log(1); // it never writes and never ends
  moveTo("bravo");
  (await log(2)).write("by bravo", "b1");
  expect((await first).value).toEqual(["by bravo"]);
  expect(moves).toEqual(["bravo"]);
});

test("a log whose connection broke goes on where it was, at the same node", async () => {
  const { lines, moves, log } = await fleet();
  const first = lines.next();
  const before = await log(1);
  before.write("one", "a1");
  await first;
  const second = lines.next();
  before.response.destroy();
  const after = await log(2);
  expect(after).toMatchObject({ node: "alpha", from: "a1" });
  after.write("two", "a2");
  expect((await second).value).toEqual(["two"]);
  expect(moves).toEqual([undefined]);
});

test("a deleted deployment ends the log with an error", async () => {
  const { lines, moveTo, log } = await fleet();
  const first = lines.next();
  const { response } = await log(1);
  moveTo(undefined);
  response.end("event: end\ndata: {}\n\n");
  await expect(first).rejects.toMatchObject({ code: "NOT_FOUND" });
});
