import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DeploymentView } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { App } from "../../packages/server/src/app.ts";
import { openServer } from "../../packages/server/testing/databases.ts";
import { startTestApp } from "../../packages/server/testing/test-app.ts";

// `tenure deployment …` against a server with one node that does as it is told.

let database: Awaited<ReturnType<typeof openServer>>;
let app: App;
let node: RawNode;
beforeAll(async () => {
  vi.stubEnv("NO_COLOR", "1");
  database = await openServer();
  app = await startTestApp({ postgresUri: database.uri });
  node = await connectRawNode({ url: app.url });
  await node.register({ name: "worker" });
});
afterAll(async () => {
  await node.close();
  await app.stop();
  await database.close();
});

/** One command line, in this process: a process of its own takes two seconds to come up on a busy machine. */
async function tenure(...args: string[]) {
  const { main } = await import("../../packages/cli/src/main.ts");
  const written = { out: "", err: "" };
  const hear = (name: "out" | "err") => (text: string | Uint8Array) => {
    written[name] += text.toString();
    return true;
  };
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(hear("out")),
    vi.spyOn(process.stderr, "write").mockImplementation(hear("err")),
  ];
  try {
    const code = await main([
      ...[process.execPath, "tenure", "deployment"],
      ...[...args, ...(args.includes("--url") ? [] : ["--url", app.url])],
    ]);
    return { code, out: written.out.trimEnd(), err: written.err };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}
const json = async (...args: string[]) => JSON.parse((await tenure(...args, "--json")).out);

/** The node claims everything that is free and says that it runs; a restart gets another pid. */
async function obey(id: string, generation: number, pid: number): Promise<void> {
  const candidates = [{ id, generation: generation - 1 }];
  node.send({ type: "request", id: `c${pid}`, method: "deployment.claim", params: { candidates } });
  await node.receive("response", (response) => response.id === `c${pid}`);
  await say(id, generation, pid);
}
async function say(deployment_id: string, generation: number, pid: number, state = "running") {
  const params = { deployment_id, generation, state, pid };
  node.send({ type: "request", id: `r${pid}`, method: "deployment.report", params });
  await node.receive("response", (response) => response.id === `r${pid}`);
}

test("apply prints the plan, does it, and does nothing the second time", async () => {
  const file = join(scratchDirectory("apply"), "fleet.yaml");
  writeFileSync(
    file,
    "- {name: web, package_name: web, package_version: 1.0.0, env: {KEY: s3cret}}\n- {name: agent, type: daemon, package_name: agent, package_version: 1.0.0}\n",
  );
  const dry = await tenure("apply", "-f", file, "--dry-run");
  expect(dry.out).toContain("+ web");
  expect(await json("ls")).toEqual([]);
  expect((await tenure("apply", "-f", file)).code).toBe(0);
  expect((await json("ls")).map(({ name }: DeploymentView) => name)).toEqual(["agent", "web"]);
  const again = await tenure("apply", "-f", file);
  expect(again.out.split("\n")).toEqual(["= web unchanged", "= agent unchanged"]);
  writeFileSync(file, "- {name: web, package_version: 2.0.0, env: {KEY: other}}\n");
  const changed = await tenure("apply", "-f", file);
  expect(changed.out).toContain('package_version: "1.0.0" → "2.0.0"');
  expect(changed.out).not.toContain("other");
  expect(await json("show", "web")).toMatchObject({ package_version: "2.0.0", revision: 2 });
  expect((await tenure("rollback", "web")).code).toBe(0);
  expect(await json("show", "web")).toMatchObject({
    package_version: "1.0.0",
    env: { KEY: "s3cret" },
  });
  expect((await tenure("rm", "web", "agent")).code).toBe(0);
});

test("the CLI creates, explains, disables and removes several deployments of a kind", async () => {
  const made = await json(
    "create",
    "--name",
    "w",
    "--package",
    "@acme/w@1.2.3",
    "--count",
    "3",
    "--env",
    "A=b=c",
  );
  expect(made.map(({ name }: DeploymentView) => name)).toEqual(["w-1", "w-2", "w-3"]);
  expect(made[0]).toMatchObject({
    package_name: "@acme/w",
    package_version: "1.2.3",
    env: { A: "b=c" },
  });
  expect((await tenure("why", "w-1")).out).toContain("node worker does not trust @acme/w@1.2.3");
  expect(await json("disable", "w-1", "w-2")).toMatchObject([
    { enabled: false },
    { enabled: false },
  ]);
  expect((await tenure("ls")).out).toContain("disabled");
  expect(await json("enable", "w-1")).toMatchObject([{ enabled: true }]);
  expect((await tenure("rm", "w-1", "w-2", "w-3")).code).toBe(0);
  expect(await tenure("show", "w-1")).toMatchObject({
    code: 1,
    err: expect.stringContaining("NOT_FOUND"),
  });
});

test("a restart waits until a new process runs, and a failure ends it", async () => {
  const [{ id }] = await json("create", "--name", "slow", "--package", "x@1.0.0");
  await obey(id, 1, 11);
  const answerRestart = async (pid: number, state?: string) => {
    const request = await node.receive(
      "request",
      ({ method, id: at }) => method === "deployment.restart" && Number(at) > lastRestart,
    );
    lastRestart = Number(request.id);
    node.send({ type: "response", id: request.id, result: {} });
    await say(id, 1, pid, state);
  };
  let lastRestart = 0;
  const [well] = await Promise.all([tenure("restart", "slow"), answerRestart(12)]);
  expect(well).toMatchObject({ code: 0, err: expect.stringContaining("✓ slow") });
  const [badly] = await Promise.all([tenure("restart", "slow"), answerRestart(13, "failed")]);
  expect(badly).toMatchObject({ code: 1, err: expect.stringContaining("✗ slow") });
});

test("a log is printed, and followed until the deployment is deleted", async () => {
  const [{ id }] = await json("create", "--name", "talks", "--package", "x@1.0.0");
  await obey(id, 1, 21);
  const answer = async (method: string, result: object) => {
    const request = await node.receive("request", (one) => one.method === method);
    node.send({ type: "response", id: request.id, result });
    return request.id;
  };
  const [read] = await Promise.all([
    tenure("logs", "talks", "-n", "2"),
    answer("log.read", { lines: ["one", "two\u001b[2J"], next: "p" }),
  ]);
  expect(read.out).toBe("one\ntwo\ufffd[2J");
  const following = tenure("logs", "talks", "-f");
  const at = await answer("log.follow", {});
  node.send({ type: "log_chunk", id: at, lines: ["three"], next: "p" });
  await until(() => node.socket.bufferedAmount === 0, { what: "the chunk to be sent" });
  await node.close();
  await fetch(`${app.url}/api/v1/deployments/talks`, {
    method: "DELETE",
    headers: { "content-type": "application/json" },
  });
  const { code, out, err } = await following;
  expect({ code, out }).toEqual({ code: 1, out: "three" });
  expect(err).toMatch(/^--- log stream ended; waiting for it to resume\n(.*\n)*NOT_FOUND: /);
});

test("apply creates many, and finds its own rows when it is run twice at the same time", async () => {
  const file = join(scratchDirectory("apply"), "many.json");
  const deployments = Array.from({ length: 40 }, (_, n) => ({
    name: `many-${n}`,
    command: "true",
  }));
  writeFileSync(file, JSON.stringify({ deployments }));
  const runs = await Promise.all([tenure("apply", "-f", file), tenure("apply", "-f", file)]);
  expect(runs.map(({ code }) => code)).toEqual([0, 0]);
  const { out } = await tenure("ls");
  expect([...out.matchAll(/^many-\d+ /gm)]).toHaveLength(40);
  await tenure("rm", ...deployments.map(({ name }) => name));
});

test("an error of several lines is printed as lines", async () => {
  const file = join(scratchDirectory("apply"), "bad.yaml");
  writeFileSync(file, "deployments:\n  - name: [a\n");
  const { code, err } = await tenure("apply", "-f", file);
  expect(code).toBe(1);
  expect(err).not.toContain("\ufffd");
  expect(err.trimEnd().split("\n").length).toBeGreaterThan(2);
});

test("the CLI passes over a URL that does not answer", async () => {
  const { code, out } = await tenure("ls", "--url", `http://127.0.0.1:1,${app.url}`);
  expect({ code, out }).toEqual({ code: 0, out: (await tenure("ls")).out });
});
