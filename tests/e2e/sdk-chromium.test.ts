import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { Worker } from "@tenure/sdk";
import { startProxy } from "@tenure/testing/processes/proxy";
import { build } from "vite";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { openCutFleet } from "../../packages/server/testing/cut-fleet.ts";
import { type JobFleet, openJobFleet } from "../../packages/server/testing/job-fleet.ts";
import { openBrowser } from "../console/browser.ts";

// The SDK in Chromium, at a real instance and over a line that fails.

const ENTRY = fileURLToPath(new URL("../../packages/sdk/src/index.ts", import.meta.url));

let fleet: JobFleet;
let script: string;
beforeAll(async () => {
  fleet = await openJobFleet("memory");
  const built = await build({
    configFile: false,
    logLevel: "error",
    resolve: { conditions: ["source", "browser"] },
    build: {
      write: false,
      lib: { entry: ENTRY, formats: ["iife"], name: "tenure" },
    },
  });
  const [{ output }] = [built].flat() as unknown as [{ output: { code: string }[] }];
  script = output.map(({ code }) => code).join("\n");
}, 60_000);
afterEach(() => fleet.rest());
afterAll(() => fleet.stop());

test("a session submits without crypto.randomUUID, and leaves a line that has gone silent", async () => {
  const proxy = await startProxy({ targetPort: Number(new URL(fleet.apps[0]!.url).port) });
  onTestFinished(() => proxy.stop());
  await obedientNode();
  const page = await openPage(`http://127.0.0.1:${proxy.port}`);
  // As in a page over plain http from another host.
  await page.evaluate("delete Crypto.prototype.randomUUID");
  await page.evaluate(`
    window.downs = [];
    window.session = new tenure.Session({
      url: location.origin,
      limits: { pingEveryMs: 300 },
      on: { down: ({ kind }) => downs.push(kind) },
    });
  `);
  const submit = () =>
    page.evaluate(`session.submit({ pool: "${fleet.pool}", payload: 1 }).then(({ body }) => body)`);
  expect(await submit()).toBe("done");
  await page.evaluate("new Promise((resolve) => setTimeout(resolve, 1500))");
  expect(await page.evaluate("downs")).toEqual([]);
  // Both directions, without a close: a proxy that forgot the flow.
  proxy.forget();
  expect(await submit()).toBe("done");
  expect(await page.evaluate("downs")).toContain("silent");
}, 60_000);

test("a loop of submits waits for room, and all of them end", async () => {
  await obedientNode();
  const page = await openPage(fleet.apps[0]!.url);
  const bodies = await page.evaluate(`(async () => {
    const session = new tenure.Session({ url: location.origin, outstandingMax: 5 });
    const jobs = [];
    for (let n = 0; n < 50; n++) jobs.push(session.submit({ pool: "${fleet.pool}", payload: n }));
    const results = await Promise.all(jobs);
    await session.close();
    return results.map(({ body }) => body);
  })()`);
  expect(bodies).toEqual(Array.from({ length: 50 }, () => "done"));
}, 60_000);

test("a page that stood still for longer than its patience gets the result", async () => {
  const node = await fleet.node(fleet.apps[0]!);
  const page = await openPage(fleet.apps[0]!.url);
  await page.evaluate(`
    window.session = new tenure.Session({
      url: location.origin, patienceMs: 5_000,
    });
    window.job = session.submit({ pool: "${fleet.pool}", payload: 1 });
    window.heard = [];
    (async () => { for await (const event of job) heard.push(event); })().catch(() => {});
    0; // or this call would wait for the job
  `);
  const assigned = await node.assigned();
  node.say("job_ack", assigned);
  node.say("job_started", assigned);
  await page.waitForFunction(`heard.some(({ state }) => state === "RUNNING")`);
  await page.evaluate("const end = Date.now() + 8_000; while (Date.now() < end);");
  // Two sweeps of its timers later it still waits.
  await page.evaluate("new Promise((resolve) => setTimeout(resolve, 2_000))");
  node.say("job_result", assigned, { success: true, body: "done" });
  expect(await page.evaluate("job.then(({ body }) => body)")).toBe("done");
}, 60_000);

test("a worker takes a job with a timeout near 2^31 ms, and says that a URL is wrong", async () => {
  const page = await openPage(fleet.apps[0]!.url);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  expect(
    await page.evaluate(`(async () => {
      const url = location.origin;
      const worker = new tenure.Worker({ url, pools: ["page"], capacity: 1, run: async () => "ran" });
      const session = new tenure.Session({ url });
      const timeoutMs = 2 ** 31 - 1;
      const { body } = await session.submit({ pool: "page", payload: 1, timeoutMs });
      await Promise.all([session.close(), worker.close()]);
      return body;
    })()`),
  ).toBe("ran");
  const wrong = `new tenure.Worker({ url: "no url", pools: ["p"], capacity: 1, run: async () => 1 })`;
  await expect(page.evaluate(`${wrong}; 1`)).rejects.toThrow(/a URL to connect to must start/);
  expect(errors).toEqual([]);
}, 60_000);

test("a session leaves an instance that has lost Redis, with its turn and what it has open", async () => {
  const origin = await servePage();
  const cutFleet = await openCutFleet({ TENURE_SERVER_ALLOWED_ORIGINS: origin });
  const [cut, well] = cutFleet.instances;
  const worker = new Worker({
    url: well!.app.url,
    pools: ["p"],
    capacity: 2,
    run: async () => "done",
  });
  onTestFinished(() => worker.close());
  const page = await openPage(origin);
  await page.evaluate(`
    window.instances = [];
    // Ten times as fast: a heartbeat every half a second.
    const clock = {
      monotonicMs: () => performance.now() * 10,
      after(ms, act) {
        const timer = setTimeout(act, ms / 10);
        return () => clearTimeout(timer);
      },
    };
    window.session = new tenure.Session({
      url: ${JSON.stringify(cutFleet.urls)},
      clock,
      limits: { pingEveryMs: 50_000, readyWithinMs: 100_000 },
      patienceMs: 600_000,
      on: { ready: ({ instance_id }) => instances.push(instance_id) },
    });
    window.turn = session.turn();
  `);
  await page.evaluate(`turn.submit({ pool: "p", payload: 1 }).then(() => 1)`);
  cut!.proxies[1]!.blackHole("both");
  await page.evaluate("turn.finalize()");
  const submitted = `Promise.all([1, 2, 3].map((payload) => session.submit({ pool: "p", payload })))`;
  expect(await page.evaluate(`${submitted}.then((results) => results.length)`)).toBe(3);
  expect(await page.evaluate("instances")).toEqual([cut!.app.instanceId, well!.app.instanceId]);
}, 90_000);

/** The origin of an application's own page. */
async function servePage(): Promise<string> {
  const server = createServer((_, response) => response.end("a page"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function obedientNode(): Promise<void> {
  const node = await fleet.node(fleet.apps[0]!, { capacity: 2 });
  node.obey();
}

/** A page with the SDK in it. It is one of loopback: Chromium lets no other page connect there. */
async function openPage(url: string) {
  const browser = await openBrowser();
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  await page.goto(`${url}/health/live`);
  await page.evaluate(`${script}; window.tenure = tenure;`);
  return page;
}
