import { fileURLToPath } from "node:url";
import { build } from "vite";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { openBrowser } from "../../../tests/console/browser.ts";
import { startProxy } from "../../../tests/support/proxy.ts";
import { type JobFleet, openJobFleet } from "./job-fleet.ts";

// The SDK in Chromium, at a real instance and over a line that fails.

const ENTRY = fileURLToPath(new URL("../../sdk/src/index.ts", import.meta.url));

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
afterAll(() => fleet.stop());

test("a session submits without crypto.randomUUID, and leaves a line that has gone silent", async () => {
  const proxy = await startProxy({ targetPort: Number(new URL(fleet.apps[0]!.url).port) });
  onTestFinished(() => proxy.stop());
  const node = await fleet.node(fleet.apps[0]!, { capacity: 2 });
  node.obey();
  const browser = await openBrowser();
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  const url = `http://127.0.0.1:${proxy.port}`;
  // A real page of the same origin: Chromium lets no other page connect to loopback.
  await page.goto(`${url}/health/live`);
  // As in a page over plain http from another host.
  await page.evaluate("delete Crypto.prototype.randomUUID");
  await page.evaluate(`${script}; window.tenure = tenure;`);
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
}, 25_000);
