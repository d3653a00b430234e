import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";

// Real processes on a busy machine: each start may take many times its two seconds.
vi.setConfig({ testTimeout: 90_000 });

describe("tenure", () => {
  test("--help names every command and what it is for", async () => {
    const { code, stdout, stderr } = await tenure("--help");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const command of ["dev", "server", "health", "cluster"])
      expect(stdout).toMatch(new RegExp(`^ +${command} .*[a-z]{3,}`, "m"));
  });

  test("server --help names the flags of that command", async () => {
    const { code, stdout } = await tenure("server", "--help");
    expect(code).toBe(0);
    for (const flag of ["--config", "--port", "--data-dir"]) expect(stdout).toContain(flag);
  });

  test("--version is the package's", async () => {
    expect(await tenure("--version")).toMatchObject({ code: 0, stdout: "0.2.0" });
  });

  test.each([
    [["helth"], /unknown command 'helth'.*\n.*health/s],
    [["health", "--jason"], /unknown option '--jason'.*\n.*--json/s],
    [["--nonsense"], /unknown option '--nonsense'/],
  ])("%s is a mistake in the command line: 2, and what was meant", async (args, sentence) => {
    const { code, stdout, stderr } = await tenure(...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(sentence);
    expect(stderr).not.toMatch(STACK);
  });
});

describe("asking a server", () => {
  let database: TestDatabase;
  let server: RunningServer;
  beforeAll(async () => {
    database = await createDatabase(stores().postgresAdminUri);
    const env = {
      ...storeSettings({ postgresUri: database.uri }),
      TENURE_TOKENS: "viewer:look-at-the-fleet,session:play-in-the-fleet",
      TENURE_SCHEDULER_PHASE2_INSTANCE_ID: "asked",
    };
    server = await startServer({ env });
  });
  afterAll(async () => {
    await server?.stop();
    await database?.drop();
  });

  test("health says ready, and 0", async () => {
    const { code, stdout } = await tenure("health", "--url", server.url);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^ready instance asked\n● postgres \(postgres\)\n● memory \(memory\)\n● members \(postgres\)$/,
    );
  });

  test("--json is the server's own answer", async () => {
    const { code, stdout } = await tenure("health", "--url", server.url, "--json");
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual((await server.get("/health/ready")).body);
  });

  test.each([
    ["by a flag", ["--token", "look-at-the-fleet"], {}],
    ["by the environment", [], { TENURE_TOKEN: "look-at-the-fleet" }],
  ])("cluster, with the token given %s", async (_, flags, env) => {
    const { code, stdout } = await tenureIn(env, "cluster", "--url", server.url, ...flags);
    expect(code).toBe(0);
    const [heading, row] = stdout.split("\n");
    expect(heading).toMatch(/^INSTANCE +URL +VERSION +STATE$/);
    expect(row).toMatch(new RegExp(`^asked ← +${server.url} +0\\.2\\.0 +live *$`));
    expect(stdout).toMatch(
      /stores: postgres \(postgres\) up, memory \(memory\) up, members \(postgres\) up; phase2 off/,
    );
  });

  test("cluster --json, with the URL from the environment", async () => {
    const env = { TENURE_URL: server.url, TENURE_TOKEN: "look-at-the-fleet" };
    const { code, stdout } = await tenureIn(env, "cluster", "--json");
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ instance_id: "asked", instances: [{ live: true }] });
  });

  test.each([
    ["without a token", {}, /^UNAUTHENTICATED: /],
    ["with a wrong one", { TENURE_TOKEN: "guess" }, /^UNAUTHENTICATED: /],
    [
      "with one of another role",
      { TENURE_TOKEN: "play-in-the-fleet" },
      /^FORBIDDEN: role session may not/,
    ],
  ])("%s is refused: 1, with the code", async (_, env, sentence) => {
    const { code, stdout, stderr } = await tenureIn(env, "cluster", "--url", server.url);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(sentence);
    expect(stderr).not.toMatch(STACK);
  });
});

describe("asking a server that is not well", () => {
  test("health shows which store is down, and 1", async () => {
    const url = await fake(503, {
      status: "not_ready",
      instance_id: "sick",
      dependencies: [{ name: "redis", kind: "redis", ok: false, reason: "ECONNREFUSED" }],
    });
    const { code, stdout } = await tenure("health", "--url", url);
    expect({ code, stdout }).toEqual({
      code: 1,
      stdout: "not ready instance sick\n● redis (redis) ECONNREFUSED",
    });
    expect((await tenure("health", "--url", url, "--json")).code).toBe(1);
  });

  test.each([
    [
      "nobody there",
      "http://127.0.0.1:1",
      /^DEPENDENCY_DOWN: the server at http:\/\/127\.0\.0\.1:1 is down/,
    ],
    ["no URL", "127.0.0.1:7070", /^"127\.0\.0\.1:7070" is not the URL of a server/],
    ["nothing of a URL", "here", /^"here" is not the URL of a server/],
  ])("%s is one sentence, and 1", async (_, url, sentence) => {
    const { code, stdout, stderr } = await tenure("health", "--url", url);
    expect({ code, stdout, lines: stderr.split("\n").length }).toEqual({
      code: 1,
      stdout: "",
      lines: 1,
    });
    expect(stderr).toMatch(sentence);
  });

  test("another program at that address is one sentence, and 1", async () => {
    const url = await fake(200, { hello: "world" });
    const { code, stderr } = await tenure("health", "--url", url);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: "INTERNAL: unexpected answer (200) to GET /health/ready; is this a Tenure server?",
    });
  });
});

describe("text that would command the terminal is shown as text", () => {
  const bad = "\u001b[2J\u001b]0;owned\u0007x\u009b31m\u202ey\rz\nw";
  const dependencies = [{ name: `n${bad}`, kind: `k${bad}`, ok: false, reason: `r${bad}` }];
  const cluster = {
    server_id: "i",
    instance_id: "i",
    version: "1",
    phase2: false,
    timeline_confirmed: true,
    dependencies,
    instances: [
      {
        instance_id: "i",
        boot_id: "018f2f6e-0000-7000-8000-000000000000",
        url: `http://u${bad}`,
        version: `v${bad}`,
        live: true,
        expires_at: "2030-01-01T00:00:00.000Z",
        inbox_pending: null,
        dlq_length: null,
      },
    ],
  };
  const health = { status: "not_ready", instance_id: "i", dependencies };
  const error = { error: { code: `C${bad}`, message: `m${bad}`, retryable: false, details: {} } };

  test.each([
    ["a table", "cluster", [], 200, cluster],
    ["a table in JSON", "cluster", ["--json"], 200, cluster],
    ["a list", "health", [], 503, health],
    ["a list in JSON", "health", ["--json"], 503, health],
    ["an error", "cluster", [], 400, error],
  ])("in %s", async (_, command, flags, status, body) => {
    const url = await fake(status, body);
    const { stdout, stderr } = await tenureIn(
      { FORCE_COLOR: "1" },
      command,
      "--url",
      url,
      ...flags,
    );
    const shown = `${stdout}\n${stderr}`;
    expect(shown).toContain("owned");
    // Colours of our own are the only commands, and lines end where we end them.
    const rest = shown.replace(OWN_COLOUR, "").replaceAll("\n", "");
    expect(rest.match(COMMANDS)).toBeNull();
    expect(stdout.split("\n").filter((line) => line.startsWith("w"))).toEqual([]);
  });
});

const STACK = /^\s+at .+:\d+/m;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
const OWN_COLOUR = /\u001b\[(1|2|22|31|32|39)m/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
const COMMANDS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

const tenure = (...args: string[]) => tenureIn({}, ...args);

async function tenureIn(env: Record<string, string>, ...args: string[]) {
  const run = startTenure(args, { env });
  const { code } = await run.exited;
  return { code, stdout: run.stdout(), stderr: run.stderr() };
}

/** A server that answers everything alike, whatever it is asked. */
async function fake(status: number, body: object): Promise<string> {
  const server = createServer((_, response) => {
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
