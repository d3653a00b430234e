import { readFileSync } from "node:fs";
import { createServer as createPlainServer } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createTestCa, replaceFile } from "@tenure/testing/certificates";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, onTestFinished, test } from "vitest";
import { createAdmin, ROUTES, Session, Worker } from "../index.ts";
import { openFetch } from "./tls-node.ts";

const ca = createTestCa();
const other = createTestCa("Another CA");

async function serve() {
  const server = createServer(ca.issue(), (_, reply) => reply.end("hello"));
  server.listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  return { server, url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

test("files are read at each new connection", async () => {
  const { server, url } = await serve();
  const caFile = join(scratchDirectory("trust"), "ca.pem");
  replaceFile(caFile, readFileSync(other.caFile, "utf8"));
  const fetchWith = openFetch({ caFile });
  await expect(fetchWith(url, {})).rejects.toThrow("fetch failed");
  replaceFile(caFile, readFileSync(ca.caFile, "utf8"));
  expect(await (await fetchWith(url, {})).text()).toBe("hello");
  // An empty file would mean the CAs that Node trusts.
  replaceFile(caFile, "");
  server.closeAllConnections();
  await expect(fetchWith(url, {})).rejects.toThrow("fetch failed");
});

test.each([
  [
    "a file that is not there",
    { caFile: "/nowhere.pem" },
    /caFile names a file that cannot be read/,
  ],
  [
    "a file that is no certificate",
    { caFile: "/etc/passwd" },
    /caFile names a file that is not PEM/,
  ],
  ["half of a pair", { certFile: ca.caFile }, /expected both or neither/],
])("%s is found before the first connection", (_, tls, sentence) => {
  const url = "https://127.0.0.1:1";
  expect(() => createAdmin({ url, tls })).toThrow(sentence);
  expect(() => new Session({ url, tls })).toThrow(sentence);
  const worker = { pools: ["p"], capacity: 1, run: async () => 1 };
  expect(() => new Worker({ url, tls, ...worker })).toThrow(sentence);
});

test("a server that does not speak TLS is named as such, by a socket and by a request", async () => {
  const server = createPlainServer((_, reply) => reply.end());
  server.listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const reason = /does not speak TLS at this port; try http:/;
  await expect(createAdmin({ url }).call(ROUTES.readCluster, {})).rejects.toThrow(reason);
  const lost = await new Promise<string>((resolve) => {
    const session = new Session({ url, on: { down: ({ reason }) => resolve(reason) } });
    onTestFinished(() => session.close());
  });
  expect(lost).toMatch(reason);
});
