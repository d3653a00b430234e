import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { identify, isAlive } from "@tenure/testing/processes/proc";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { openDirectory, otherUser } from "./other-user.ts";
import type { AttackedServer } from "./scene.ts";

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const PATIENT = { deadlineMs: 120_000 };
const SIBLING_SECRET = "sk_live_only_for_the_sibling";
const LAST_WORDS = "password=hunter2-of-the-database";
const CRASH = 'echo "$WORDS" >&2; exit 3';
const KEY_LINE = "BEGIN PRIVATE KEY";

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "viewer", role: "viewer" },
    { name: "node", role: "node" },
  ]);
});
afterAll(() => server?.stop());

/** Reads what it can of the agent, of its neighbours and of the node's key, and says who it is. */
const STEAL = [
  'echo "uid $(id -u)"',
  'tr "\\0" "\\n" </proc/$PPID/environ',
  'for file in /proc/[0-9]*/environ; do tr "\\0" "\\n" <"$file"; done 2>/dev/null | grep -a -e sk_live -e HOST_TOKEN=',
  "cat ../../node.key ../*/kept.txt",
  "ls ../..",
  "echo again >>../../packages/planted || echo no planting",
].join("\n");
const KEEP = "umask 022; echo kept-by-$TENURE_WORK_DIR >kept.txt; cat kept.txt; id -u";

async function create(spec: Record<string, unknown>): Promise<string> {
  const { status, body } = await server.as("admin", "POST", "/api/v1/deployments", spec);
  expect(status).toBe(201);
  return (body as { id: string }).id;
}

async function remove(...ids: string[]): Promise<void> {
  for (const id of ids) await server.as("admin", "DELETE", `/api/v1/deployments/${id}`);
}

async function logOf(id: string): Promise<string> {
  const { body } = await server.as("admin", "GET", `/api/v1/deployments/${id}/logs`);
  return ((body as { lines?: string[] }).lines ?? []).join("\n");
}

function untilSaid(id: string, times: number): Promise<string> {
  const said = async () => {
    const log = await logOf(id);
    return log.split("that is all").length > times ? log : undefined;
  };
  return until(said, { ...PATIENT, what: `the log of ${id}` });
}

async function runningPid(id: string): Promise<number> {
  const running = async () => {
    const { body } = await server.as("admin", "GET", `/api/v1/deployments/${id}`);
    const { status } = body as { status: { state: string; pid: number; past: boolean }[] };
    return status.find(({ state, past }) => state === "running" && !past)?.pid;
  };
  return until(running, { ...PATIENT, what: `${id} to run` });
}

const unitEnv = { HOST_TOKEN: "", NODE_UNIT_RUN_AS: "per-deployment:71000-71999" };
const andWait = (script: string) => `(${script}\n) 2>&1; echo that is all; exec sleep 600`;

if (otherUser)
  test("a child under NODE_UNIT_RUN_AS reads neither the agent's token and key nor a sibling's secrets; its uid and files stay its own", async () => {
    const dataDir = join(openDirectory("home"), "node");
    const env = { ...unitEnv, HOST_TOKEN: server.secretOf("node") };
    const start = () => startUnit({ name: "strict", urls: [server.url], dataDir, env });
    let unit: RunningUnit = await start();
    const sibling = await create({
      name: "sibling",
      command: andWait(KEEP),
      env: { SIBLING: SIBLING_SECRET },
    });
    const siblingSaid = await untilSaid(sibling, 1);
    const thief = await create({ name: "thief", command: andWait(STEAL) });
    const stolen = await untilSaid(thief, 1);
    expect(stolen).not.toContain(server.secretOf("node"));
    expect(stolen).not.toContain(SIBLING_SECRET);
    expect(stolen).not.toContain(KEY_LINE);
    expect(stolen).not.toContain("kept-by");
    expect(stolen).not.toMatch(/\b(run|logs|packages)$/m);
    expect(stolen).toContain("no planting");
    const uidOf = (text: string) => Number(/\b(71\d{3})$/m.exec(text)?.[1]);
    expect(uidOf(stolen)).not.toBe(uidOf(siblingSaid));
    expect(statSync(join(dataDir, "work", thief)).uid).toBe(uidOf(stolen));

    // Killed, the agent takes its children along although they are of other users; the next one gives them the same users.
    const before = identify(await runningPid(sibling))!;
    await unit.kill9();
    await until(() => !isAlive(before), { ...PATIENT, what: "the child to end with its agent" });
    unit = await start();
    const again = await untilSaid(sibling, 2);
    expect(again.match(/kept-by/g)).toHaveLength(2);
    expect(new Set(again.match(/71\d{3}$/gm))).toEqual(new Set([String(uidOf(siblingSaid))]));
    const last = identify(await runningPid(sibling))!;
    await remove(sibling, thief);
    await until(() => !isAlive(last), { ...PATIENT, what: "the child to be stopped" });
    await unit.stop();
  });

test("what a program wrote before it crashed is shown to admin, and to a viewer only how it ended", async () => {
  const tokenFile = join(scratchDirectory("secrets"), "token");
  writeFileSync(tokenFile, `${server.secretOf("node")}\n`, { mode: 0o600 });
  const unit = await startUnit({
    name: "plain",
    urls: [server.url],
    env: { HOST_TOKEN_FILE: tokenFile },
  });
  const watching = new AbortController();
  const streamed = follow("viewer", watching.signal);
  const crash = await create({ name: "crash", command: CRASH, env: { WORDS: LAST_WORDS } });
  const paths = [`deployments/${crash}`, "deployments", `deployments/${crash}/why`, "events"];
  const all = async (name: string) => {
    const answers = await Promise.all(
      paths.map((path) => server.as(name, "GET", `/api/v1/${path}`)),
    );
    return answers.map(({ body }) => JSON.stringify(body));
  };
  const said = async () => (await all("admin")).every((text) => text.includes(LAST_WORDS));
  await until(said, { ...PATIENT, what: "the admin to see why it crashed" });
  await until(() => streamed.text().includes("deployment.crashed"), {
    ...PATIENT,
    what: "the stream",
  });
  watching.abort();
  const seen = await all("viewer");
  expect([...seen, streamed.text()].filter((text) => text.includes(LAST_WORDS))).toEqual([]);
  expect(seen[0]).toMatch(/"exit_code":3/);
  expect(seen[3]).toMatch(/"exit_code":3/);
  await remove(crash);
  await unit.stop();
});

/** Reads `/stream` as the holder of a token. */
function follow(name: string, signal: AbortSignal): { text(): string } {
  let text = "";
  const read = async () => {
    const headers = { authorization: `Bearer ${server.secretOf(name)}` };
    const response = await fetch(`${server.url}/api/v1/stream`, { headers, signal });
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) text += decoder.decode(bytes, { stream: true });
  };
  read().catch(() => {}); // aborted
  return { text: () => text };
}
