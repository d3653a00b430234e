import { chmodSync, chownSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { startUnit } from "@tenure/testing/fleet/node-unit";
import { startServer } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { expect, test, vi } from "vitest";
import { asOther, openDirectory, openToOthers, otherUser } from "./other-user.ts";
import { attackServer } from "./scene.ts";

vi.setConfig({ testTimeout: 240_000 });

const SECRET = "sk_live_of_a_deployment";
const SEARCH = `grep -rhoa ${SECRET} "$1" | sort -u`;
const WRITE = `find "$1" -type f -writable`;

async function storeSecret(url: string): Promise<void> {
  const body = JSON.stringify({ name: "paid", command: "sleep 600", env: { KEY: SECRET } });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/api/v1/deployments`, { method: "POST", headers, body });
  expect(answer.status).toBe(201);
}

test("another user reads and writes nothing of the embedded database, also where an older release left it open", async () => {
  const dataDir = join(openDirectory("home"), "data");
  const first = await startServer({ dataDir });
  await storeSecret(first.url);
  await expectClosed(dataDir);
  await first.stop();
  openUp(dataDir);

  const second = await startServer({ dataDir });
  await expectClosed(dataDir);
  expect(second.stderr().match(/"store\.directory-closed"/g)).toHaveLength(1);
  await second.stop();
});

async function expectClosed(dataDir: string): Promise<void> {
  if (otherUser) {
    const found = await asOther(SEARCH, dataDir);
    const writable = (await asOther(WRITE, dataDir)).match(/^\//gm) ?? [];
    expect({ found, writable: writable.length }).toEqual({
      found: expect.not.stringContaining(SECRET),
      writable: 0,
    });
  }
  expect(openToOthers(dataDir)).toEqual([]);
}

if (otherUser)
  test("a data_dir of another user is refused with a sentence, by server and node-unit", async () => {
    const dataDir = openDirectory("theirs");
    chownSync(dataDir, otherUser!.uid, otherUser!.gid);
    const server = startTenure(["server", "--port", "0"], { dataDir });
    expect(await server.exited).toEqual({ code: 1, signal: null });
    expect(server.stderr()).toContain(`${dataDir} belongs to user ${otherUser!.uid}`);
    const unit = startTenure(["node", "run", "--url", "http://127.0.0.1:9"], { dataDir });
    expect(await unit.exited).toEqual({ code: 1, signal: null });
    expect(unit.stderr()).toContain(`${dataDir} belongs to user ${otherUser!.uid}`);
  });

test("a node-unit closes its own directory; its children have the umask that it was started with", async () => {
  const server = await attackServer([]);
  const dataDir = join(openDirectory("home"), "node");
  mkdirSync(dataDir);
  const unit = await startUnit({
    name: "strict",
    urls: [server.url],
    env: { ENABLE_CUSTOM_COMMAND: "true" },
    dataDir,
  });
  const command = `umask; exec sleep 600`;
  const created = await server.as(undefined, "POST", "/api/v1/deployments", {
    name: "masked",
    command,
  });
  const { id } = created.body as { id: string };
  const lines = async () => {
    const { body } = await server.get(`/api/v1/deployments/${id}/logs`);
    return (body as { lines?: string[] }).lines ?? [];
  };
  await expect
    .poll(lines, { timeout: 60_000 })
    .toContainEqual(expect.stringMatching(new RegExp(`0*${process.umask().toString(8)}$`)));
  expect(openToOthers(dataDir)).toEqual([]);
  await unit.stop();
  await server.stop();
});

/** As 0.1.0 left it: directories 0755, files 0666. */
function openUp(path: string): void {
  chmodSync(path, 0o755);
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const below = join(path, entry.name);
    if (entry.isDirectory()) openUp(below);
    else chmodSync(below, 0o666);
  }
}
