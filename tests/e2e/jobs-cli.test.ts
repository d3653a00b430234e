import type { Job } from "@tenure/protocol";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startProcess, startTenure } from "@tenure/testing/processes/process";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { PATIENT } from "../prove/jobs-scene.ts";

// Real processes on a busy machine: each start may take many times its second.
vi.setConfig({ testTimeout: 120_000 });

describe("tenure job", () => {
  let database: TestDatabase;
  let server: RunningServer;
  let worker: RunningProcess;
  beforeAll(async () => {
    database = await createDatabase(stores().postgresAdminUri);
    const env = { ...storeSettings({ postgresUri: database.uri }), ...PATIENT };
    server = await startServer({ env });
    worker = startProcess({
      command: process.execPath,
      args: ["examples/echo-worker/main.js"],
      env: { TENURE_URL: server.url },
    });
    await worker.waitForLine(/is connected to/, 60_000);
  });
  afterAll(async () => {
    await worker?.stop();
    await server?.stop();
    await database?.drop();
  });

  const job = (...args: string[]) => jobAt(server, ...args);

  async function jobAt({ url }: RunningServer, ...args: string[]) {
    const running = startTenure(["job", ...args], { env: { TENURE_URL: url } });
    const { code } = await running.exited;
    return { code, stdout: running.stdout(), stderr: running.stderr() };
  }

  test("submit waits for the end, and show tells the whole way by either name", async () => {
    const payload = JSON.stringify({ say: "hi" });
    const asked = ["submit", payload, "--pool", "echo", "--request-id", "cli-1", "--json"];
    const submitted = await job(...asked);
    expect(submitted).toMatchObject({ code: 0, stderr: "" });
    const ended = JSON.parse(submitted.stdout);
    expect(ended).toMatchObject({ request_id: "cli-1", outcome: "succeeded", attempt_id: 1 });
    expect(ended.body).toMatchObject({ say: "hi" });

    const shown = await job("show", "cli-1");
    expect(shown.code).toBe(0);
    expect(shown.stdout).toContain(ended.job_id);
    for (const state of ["CREATED", "DISPATCHED", "ACCEPTED", "RUNNING", "FINISHED"])
      expect(shown.stdout).toMatch(new RegExp(`\\+\\d+ ms +${state} `));
    expect((await job("show", ended.job_id, "--json")).stdout).toContain('"cli-1"');

    const again = await job(...asked);
    expect(JSON.parse(again.stdout).job_id).toBe(ended.job_id);
  });

  test("a job that fails is 1, and says why", async () => {
    const failed = await job("submit", '{"fail":"the pen is dry"}', "--pool", "echo");
    expect(failed.code).toBe(1);
    expect(failed.stdout).toContain("the pen is dry");
  });

  test("nobody there to run it: 1, and the code", async () => {
    const lonely = await job("submit", "1", "--pool", "nobody", "--pending-ms", "2000");
    expect(lonely.code).toBe(1);
    expect(lonely.stdout).toContain("NO_AVAILABLE_NODE");
  });

  test("what is no JSON is explained", async () => {
    const { code, stderr } = await job("submit", "hello", "--pool", "echo");
    expect(code).toBe(1);
    expect(stderr).toContain("quote a string twice");
  });

  test("ls lists by outcome, newest first", async () => {
    await job("submit", "{}", "--pool", "echo", "--request-id", "cli-ls");
    const { stdout, code } = await job("ls", "--outcome", "succeeded", "--json");
    expect(code).toBe(0);
    const { items } = JSON.parse(stdout);
    expect(items[0].request_id).toBe("cli-ls");
    for (const { outcome } of items) expect(outcome).toBe("succeeded");
    expect((await job("ls")).stdout).toMatch(/JOB +REQUEST +POOL/);
  });

  test("cancel ends a running job, and watch follows it to that end", async () => {
    const slow = ["submit", '{"work_ms":60000}', "--pool", "echo", "--request-id", "cli-slow"];
    expect((await job(...slow, "--wait", "0")).code).toBe(0);
    const watching = startTenure(["job", "watch", "cli-slow"], { env: { TENURE_URL: server.url } });
    await watching.waitForLine(/RUNNING/, 60_000);
    const cancelled = await job("cancel", "cli-slow");
    expect(cancelled).toMatchObject({ code: 0 });
    expect(cancelled.stdout).toContain("cancelled");

    expect(await watching.exited).toMatchObject({ code: 1 });
    expect(watching.stdout()).toMatch(/FINISHED/);
    expect(watching.stdout()).toMatch(/cancelled/);
  });

  test("watch without a name tells of every job that moves, until it is stopped", async () => {
    const watching = startTenure(["job", "watch", "--json"], { env: { TENURE_URL: server.url } });
    await watching.waitForLine(/"job_id"/, 60_000);
    await job("submit", "{}", "--pool", "echo", "--request-id", "cli-seen");
    await watching.waitForLine(/"cli-seen".*"succeeded"/, 60_000);
    process.kill(watching.pid, "SIGINT");
    expect(await watching.exited).toMatchObject({ code: 0 });
  });

  test("a worker that is stopped lets its job end first", async () => {
    const leaving = startProcess({
      command: process.execPath,
      args: ["examples/echo-worker/main.js"],
      env: { TENURE_URL: server.url, ECHO_POOL: "leaving" },
    });
    await leaving.waitForLine(/is connected to/, 60_000);
    // Long enough to be seen at it, and short enough to end in the 8 s that this worker gives itself.
    const submitted = job("submit", '{"say":"last","work_ms":6000}', "--pool", "leaving");
    const begun = async () => {
      const { body } = await server.get("/api/v1/jobs?pool=leaving");
      const [found] = (body as { items: Job[] }).items;
      return found && !["CREATED", "DISPATCHED", "ACCEPTED"].includes(found.state) && found.state;
    };
    const state = await until(begun, { deadlineMs: 60_000, what: "the job to begin" });
    expect(state).toBe("RUNNING");
    expect(await leaving.stop()).toEqual({ code: 0, signal: null });
    expect(await submitted).toMatchObject({ code: 0 });
  });
});
