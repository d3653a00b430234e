import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { ROUTES } from "@tenure/protocol";
import { startProxy } from "@tenure/testing/processes/proxy";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  complaintsOf,
  NARROW,
  openBrowser,
  openWindow,
  signIn,
  type View,
  WIDE,
} from "./browser.ts";
import { createOperator, playNode, run, type Unit, unitsReady } from "./fleet-scene.ts";
import { ADMIN, raiseStage, type Stage } from "./stage.ts";

// How the console looks and reads, on every page, to everybody.
vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });
const PATIENCE = { timeout: 90_000 };

const SCRIPT = `</script><img src=x onerror="window.harmed = true">`;
const BIDI = "user\u202egnp.exe";
const ESCAPE = "\u001b[2Jcleared\u0007";
const HOSTILE = `${SCRIPT}${BIDI}${ESCAPE}`;
const SIGNER = "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7";

let database: TestDatabase;
let stage: Stage;
let unit: Unit;
let browser: Browser;
let paths: [name: string, path: string][];

beforeAll(async () => {
  const { postgresAdminUri, redisUrl } = stores();
  database = await createDatabase(postgresAdminUri);
  stage = await raiseStage({ postgresUri: database.uri, redisUrl });
  const { url } = stage;
  const operator = createOperator(url, ADMIN);
  unit = playNode({
    url,
    token: ADMIN,
    name: `node ${HOSTILE}`,
    usage: { cpu_percent: 20, memory_percent: 91, memory_mb: 900 },
    describe: { labels: { note: HOSTILE }, version: BIDI, pools: ["paint"], capacity: 4 },
  });
  await unitsReady([unit]);
  const view = await operator.create({
    name: "victim",
    command: `echo ${SCRIPT}`,
    args: [HOSTILE.replaceAll("\n", "")],
    env: { NOTE: HOSTILE },
  });
  await run(unit, view, { state: "failed", last_error: HOSTILE, exit_code: 1 });
  unit.log(view.id, `a line ${HOSTILE}`, "another line");
  await operator.create({
    name: "waiting",
    command: "true",
    selector: { note: "nobody has this" },
  });
  await fetch(`${url}/api/v1/signers/${SIGNER}/nonces`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${ADMIN}` },
    body: JSON.stringify({ request_id: "one", count: 3 }),
  });
  await stage.spoilInbox(Buffer.from(HOSTILE));
  browser = await openBrowser();
  paths = [
    ["the overview", "/"],
    ["the nodes", "/nodes"],
    ["a node", `/nodes/${unit.address}`],
    ["the deployments", "/deployments"],
    ["a deployment", `/deployments/${view.id}`],
    ["its logs", `/deployments/${view.id}/logs`],
    ["its history", `/deployments/${view.id}/history`],
    ["the jobs", "/jobs"],
    ["the sessions", "/sessions"],
    ["the signers", "/signers"],
    ["a signer", `/signers/${encodeURIComponent(SIGNER)}`],
    ["the cluster", "/cluster"],
    ["the events", "/events"],
  ];
});
afterAll(async () => {
  await browser?.close();
  await unit?.leave();
  await stage?.stop();
  await database?.drop();
});

async function enter(
  view: View = {},
  url = stage.url,
): Promise<{ window: BrowserContext; page: Page }> {
  const window = await openWindow(browser, view);
  const page = await window.newPage();
  await signIn(page, url, ADMIN);
  return { window, page };
}

async function visit(page: Page, path: string): Promise<void> {
  await page.goto(stage.url + path);
  await page.getByRole("heading", { level: 1 }).waitFor(PATIENCE);
  await expect.poll(() => page.locator(".spinner").count(), PATIENCE).toBe(0);
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe calls serious or critical, by rule and place. */
async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const { violations } = (await page.evaluate(
    "axe.run(document, { resultTypes: ['violations'] })",
  )) as {
    violations: { id: string; impact: string; nodes: { html: string }[] }[];
  };
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}

describe.each([
  ["wide and light", { viewport: WIDE, colors: "light" }],
  ["narrow and dark", { viewport: NARROW, colors: "dark" }],
] as const)("%s", (_, view) => {
  test("every page can be read by everybody, fits, and complains about nothing", async () => {
    const { window, page } = await enter(view);
    const complaints = complaintsOf(page);
    for (const [name, path] of paths) {
      await visit(page, path);
      expect(await barriers(page), name).toEqual([]);
      const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      expect(overflow, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
    }
    expect(complaints).toEqual([]);
    await window.close();
  });
});

test("the sign-in page and a form can be read by everybody", async () => {
  const window = await openWindow(browser);
  const page = await window.newPage();
  await page.goto(stage.url);
  await page.getByLabel("Token").waitFor(PATIENCE);
  expect(await barriers(page)).toEqual([]);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("unknown token").waitFor(PATIENCE);
  await signIn(page, stage.url, ADMIN);
  await visit(page, "/deployments");
  await page.getByRole("button", { name: "New deployment" }).click();
  await page.getByRole("dialog").waitFor(PATIENCE);
  expect(await barriers(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await expect.poll(() => page.getByRole("dialog").count(), PATIENCE).toBe(0);
  await window.close();
});

test("text of other machines is shown as text, and what it hides is seen", async () => {
  const { window, page } = await enter();
  page.on("dialog", () => expect.unreachable("a script of the hostile text ran"));
  for (const [name, path] of paths) {
    await visit(page, path);
    expect(await page.evaluate("window.harmed"), name).toBeUndefined();
    expect(await page.locator('img[src="x"]').count(), name).toBe(0);
    const text = (await page.evaluate("document.body.innerText")) as string;
    for (const character of "\u202e\u001b\u0007") expect(text, name).not.toContain(character);
  }
  await visit(page, `/nodes/${unit.address}`);
  const heading = page.getByRole("heading", { level: 1 });
  expect(await heading.textContent()).toContain(SCRIPT);
  expect(await heading.locator(".hostile").allTextContents()).toEqual([
    "\\u202e",
    "\\x1b",
    "\\x07",
  ]);
  await page.goto(stage.url + paths[5]![1]);
  await page.getByRole("log").getByText("a line").waitFor(PATIENCE);
  expect(await page.getByRole("log").locator(".hostile").count()).toBe(3);
  await window.close();
});

test("the page's own policy would stop a script that slipped through", async () => {
  const { window, page } = await enter();
  const refused: string[] = [];
  page.on("console", (message) => refused.push(message.text()));
  await page
    .evaluate(`
    const script = document.createElement("script");
    script.src = "data:text/javascript,window.harmed=true";
    document.body.append(script);`)
    .catch((error) => refused.push(String(error)));
  await expect
    .poll(() => refused.join(), PATIENCE)
    .toMatch(/Content Security Policy|TrustedScript/i);
  expect(await page.evaluate("window.harmed")).toBeUndefined();
  await window.close();
});

test("a page says when it no longer hears the server, and catches up when it does", async () => {
  const proxy = await startProxy({ targetPort: Number(new URL(stage.url).port) });
  const url = `http://127.0.0.1:${proxy.port}`;
  const { window, page } = await enter({}, url);
  await page.goto(`${url}/deployments`);
  await page.locator(".live-live:visible").waitFor(PATIENCE);
  proxy.refuse();
  proxy.reset();
  await page.getByText("No connection to the server.").waitFor(PATIENCE);
  await createOperator(stage.url, ADMIN).create({ name: "made-meanwhile", command: "true" });
  await proxy.heal();
  await page.locator(".live-live:visible").waitFor(PATIENCE);
  await page.getByText("made-meanwhile").waitFor(PATIENCE);
  await window.close();
  proxy.stop();
});

test("a list shows what changes, as it changes", async () => {
  const { window, page } = await enter();
  await visit(page, "/deployments");
  const operator = createOperator(stage.url, ADMIN);
  const made = await operator.create({ name: "comes-and-goes", command: "true" });
  await page.getByText("comes-and-goes").waitFor(PATIENCE);
  await operator.call(ROUTES.deleteDeployment, { params: { id: made.id } });
  await expect.poll(() => page.getByText("comes-and-goes").count(), PATIENCE).toBe(0);
  await window.close();
});
