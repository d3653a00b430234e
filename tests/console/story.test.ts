import { ROUTES } from "@tenure/protocol";
import { Session, Worker } from "@tenure/sdk";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { complaintsOf, openBrowser, openWindow, signIn } from "./browser.ts";
import { createOperator } from "./fleet-scene.ts";
import { ADMIN, raiseStage, type Stage, VIEWER } from "./stage.ts";

// Real processes and a real browser on a busy machine: only never is wrong.
vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });
const PATIENCE = { timeout: 90_000 };
const SIGNER = "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7";

let database: TestDatabase;
let stage: Stage;
let units: RunningUnit[];
let worker: Worker;
let browser: Browser;
let page: Page;
let complaints: string[];

beforeAll(async () => {
  const { postgresAdminUri, redisUrl } = stores();
  database = await createDatabase(postgresAdminUri);
  const holds = { TENURE_NONCE_HOLD_TTL_MS: "10000" };
  stage = await raiseStage({ postgresUri: database.uri, redisUrl, env: holds });
  await createOperator(stage.url, ADMIN).call(ROUTES.allocateNonces, {
    params: { signer: SIGNER },
    body: { request_id: "forgotten" },
  });
  const env = { HOST_TOKEN: ADMIN };
  const [made] = await Promise.all([
    Promise.all(["alpha", "beta"].map((name) => startUnit({ name, urls: [stage.url], env }))),
    openBrowser().then((opened) => {
      browser = opened;
    }),
  ]);
  units = made;
  worker = new Worker({
    url: stage.url,
    token: ADMIN,
    name: "painter",
    pools: ["paint"],
    capacity: 2,
    run: async () => ({ colour: "blue" }),
  });
  const window = await openWindow(browser);
  page = await window.newPage();
  complaints = complaintsOf(page);
});
afterAll(async () => {
  await browser?.close();
  await worker?.close({ withinMs: 0 });
  await Promise.all((units ?? []).map((unit) => unit.kill9()));
  await stage?.stop();
  await database?.drop();
});

const heading = (name: string | RegExp) => page.getByRole("heading", { level: 1, name });
const menu = (name: string) => page.getByRole("navigation", { name: "Pages" }).getByText(name);

/** Presses `/` in the very moment the list of nodes is there, and says where the cursor is when it has been painted. */
const PRESS_AS_NODES_APPEAR = `new Promise((resolve) => {
  const seen = new MutationObserver(() => {
    if (document.querySelector("h1")?.textContent !== "Nodes") return;
    seen.disconnect();
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => resolve(document.activeElement.type), 100));
  });
  seen.observe(document.body, { childList: true, subtree: true });
})`;

describe("an operator", () => {
  test("signs in with a token that no script and no address ever shows", async () => {
    await signIn(page, stage.url, ADMIN);
    await heading(/healthy|attention/).waitFor(PATIENCE);
    expect(page.url()).not.toContain(ADMIN);
    expect(await page.evaluate("document.cookie")).toBe("");
    expect(await page.evaluate("JSON.stringify(localStorage)")).not.toContain(ADMIN);
    const [cookie] = await page.context().cookies(`${stage.url}/api/v1`);
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  });

  test("creates a deployment, sees it placed and reads its log as it grows", async () => {
    await menu("Deployments").click();
    await page.getByRole("button", { name: "New deployment" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Name").fill("ticker");
    await form
      .getByLabel("Command")
      .fill("n=0; while true; do n=$((n+1)); echo tick $n; sleep 0.2; done");
    await form.getByRole("button", { name: "Create" }).click();
    await heading("ticker").waitFor(PATIENCE);
    await stateOf("running");
    await page.getByRole("link", { name: "Logs" }).click();
    const log = page.getByRole("log");
    await log.getByText("tick 1", { exact: true }).waitFor(PATIENCE);
    await log.getByText("tick 20", { exact: true }).waitFor(PATIENCE);
    await page.getByLabel("Find in the log").fill("tick 12");
    await page.getByText(/^1 of \d+$/).waitFor(PATIENCE);
  });

  test("loses its node, and sees the deployment move and the events of it", async () => {
    await page.getByRole("link", { name: "Summary" }).click();
    const owner = await nodeOf();
    const lost = units.find(({ name }) => name === owner)!;
    await lost.kill9();
    await until(async () => ![owner, "–"].includes(await nodeOf()), {
      deadlineMs: PATIENCE.timeout,
      what: "the deployment to be on the other node, in the browser",
    });
    await stateOf("running");
    await page.getByRole("link", { name: "History" }).click();
    await page
      .getByText(/ticker was released|ticker was taken/)
      .first()
      .waitFor(PATIENCE);
    await menu("Events").click();
    await page.locator(".event-name", { hasText: "node.left" }).first().waitFor(PATIENCE);
  });

  test("changes what runs, sees what the change was, and takes it back", async () => {
    await page.goto(`${stage.url}/deployments/ticker`);
    await page.getByRole("button", { name: "Edit" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Environment").fill("COLOUR=red");
    await form.getByRole("button", { name: "Save" }).click();
    await page.getByText("ticker was changed", { exact: true }).waitFor(PATIENCE);
    await page.getByRole("link", { name: "History" }).click();
    const newest = page.locator(".revision").first();
    await newest.getByText("env COLOUR").waitFor(PATIENCE);
    await page.getByRole("button", { name: "Roll back" }).first().click();
    await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
    await newest.getByText("Revision 3").waitFor(PATIENCE);
    await expect.poll(() => newest.locator("del").allTextContents(), PATIENCE).toEqual(["red"]);
  });

  test("submits a job and reads its timeline and result", async () => {
    await menu("Jobs").click();
    await page.getByRole("button", { name: "Submit a job" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Pool").fill("paint");
    await form.getByRole("button", { name: "Submit" }).click();
    await page.getByText("Attempt 1").waitFor(PATIENCE);
    await stateOf("succeeded");
    const steps = page.locator(".step-state");
    await expect.poll(() => steps.allTextContents(), PATIENCE).toContain("RUNNING");
    await page.getByText('"colour": "blue"').waitFor(PATIENCE);
    await page.getByRole("link", { name: "painter" }).first().waitFor(PATIENCE);
  });

  test("follows a turn to the node its jobs go to", async () => {
    const session = new Session({ url: stage.url, token: ADMIN });
    const turn = session.turn();
    await turn.submit({ pool: "paint", payload: { n: 1 } });
    await menu("Turns and sessions").click();
    await page.locator(".list-row a.mono").first().click(PATIENCE);
    await stateOf("open");
    const fact = page.locator(".fact", { has: page.getByText("Node", { exact: true }) });
    await fact.getByRole("link", { name: "painter" }).waitFor(PATIENCE);
    await page.locator(".list-row", { hasText: "succeeded" }).waitFor(PATIENCE);
    await turn.finalize();
    await stateOf("ended, manual");
    await session.close();
  });

  test("sends a dead letter again", async () => {
    const letter = {
      kind: "job.ended",
      job_id: "018f4e1a-0000-7000-8000-000000000001",
      attempt_id: 1,
      deadline_ms: 1,
    };
    await stage.lateMessage(letter);
    await menu("Cluster").click();
    await page.reload();
    const row = page.locator(".letter", { hasText: "deadline" });
    await expect.poll(() => row.count(), { ...PATIENCE, interval: 500 }).toBe(1);
    await row.getByRole("button", { name: "Redrive" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click();
    await page.getByText("The message was sent again").waitFor(PATIENCE);
    await page.getByText("No dead letters").waitFor(PATIENCE);
  });

  test("settles a number whose holder fell silent, after saying it twice", async () => {
    await menu("Signers").click();
    await page.locator(".row-link").first().click();
    await page.getByRole("button", { name: "Resolve" }).click(PATIENCE);
    const form = page.getByRole("dialog");
    const settle = form.getByRole("button", { name: "Resolve" });
    await form.getByLabel("Unused").check();
    await form.getByLabel("Evidence").fill("the account nonce is 0");
    expect(await settle.isDisabled()).toBe(true);
    await form.getByLabel("Type 0 to confirm").fill("0");
    await settle.click();
    await page.locator(".list-row", { hasText: "released" }).waitFor(PATIENCE);
  });

  test("drains a node and lets it take work again", async () => {
    await menu("Nodes").click();
    await page.getByRole("link", { name: "painter" }).click();
    await page.getByRole("button", { name: "Drain" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await stateOf("draining");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await stateOf("online");
  });

  test("an operator goes from page to page by keys and finds everything", async () => {
    await menu("Cluster").click();
    const goByKeys = async () => {
      // The second key must follow soon; a busy machine may need several tries.
      await page.keyboard.press("g");
      await page.keyboard.press("n");
      return heading("Nodes").isVisible();
    };
    await until(goByKeys, {
      deadlineMs: PATIENCE.timeout,
      everyMs: 200,
      what: "the nodes, by keys",
    });
    await page.keyboard.press("/");
    await page.keyboard.type("paint");
    await expect.poll(() => page.locator(".list-row").count(), PATIENCE).toBe(1);
    await page.keyboard.press("Tab");
    expect(page.url()).toContain("q=paint");
  });

  test("is heard from the very moment a page appears", async () => {
    await menu("Cluster").click();
    await heading("Cluster").waitFor(PATIENCE);
    const pressed = page.evaluate(PRESS_AS_NODES_APPEAR);
    await menu("Nodes").click();
    expect(await pressed).toBe("search");
  });

  test("the page raised no error", () => {
    expect(complaints).toEqual([]);
  });
});

describe("a viewer", () => {
  let window: Page;
  beforeAll(async () => {
    window = await (await openWindow(browser)).newPage();
    await signIn(window, stage.url, VIEWER);
  });

  test.each([
    "/nodes",
    "/deployments",
    "/jobs",
    "/sessions",
    "/signers",
    "/cluster",
    "/events",
  ])("finds nothing to do on %s", async (path) => {
    await window.goto(stage.url + path);
    await window.getByRole("heading", { level: 1 }).waitFor(PATIENCE);
    await expect.poll(() => window.locator(".spinner").count(), PATIENCE).toBe(0);
    expect(await window.locator(".page-actions button, .letter-actions button").count()).toBe(0);
  });

  test("a viewer finds no action on a deployment or a node", async () => {
    await window.goto(`${stage.url}/deployments/ticker`);
    await window.getByRole("heading", { name: "Status by node" }).waitFor(PATIENCE);
    expect(await window.locator(".page-actions button").count()).toBe(0);
    await window.goto(`${stage.url}/nodes/painter`);
    await window.getByRole("heading", { name: "Deployments" }).waitFor(PATIENCE);
    expect(await window.locator(".page-actions button").count()).toBe(0);
  });

  test("the server refuses a viewer's actions too", async () => {
    const ask = (method: string, path: string, body = "{}") =>
      window.evaluate(
        `fetch(${JSON.stringify(path)}, { method: ${JSON.stringify(method)}, body: ${JSON.stringify(body)}, headers: { "content-type": "application/json" } }).then((answer) => answer.status)`,
      );
    const job = JSON.stringify({ request_id: "by-hand", pool: "paint", payload: 1 });
    expect(await ask("POST", "/api/v1/deployments/ticker/restart")).toBe(403);
    expect(await ask("DELETE", "/api/v1/deployments/ticker")).toBe(403);
    expect(await ask("POST", "/api/v1/nodes/painter/drain")).toBe(403);
    expect(await ask("POST", "/api/v1/membership/release")).toBe(403);
    expect(await ask("POST", "/api/v1/jobs", job)).toBe(403);
    expect(await window.evaluate(`fetch("/api/v1/nodes").then((answer) => answer.status)`)).toBe(
      200,
    );
  });

  test("signs out, and then sees nothing", async () => {
    await window.goto(stage.url);
    await window.getByRole("button", { name: "Sign out" }).click();
    await window.getByLabel("Token").waitFor(PATIENCE);
    expect(await window.evaluate(`fetch("/api/v1/nodes").then((answer) => answer.status)`)).toBe(
      401,
    );
    await window.context().close();
  });
});

/** The state beside the heading. */
async function stateOf(word: string): Promise<void> {
  await page.locator(".page-sub .badge", { hasText: word }).waitFor(PATIENCE);
}

async function nodeOf(): Promise<string> {
  const fact = page.locator(".fact", { has: page.getByText("Node", { exact: true }) });
  return (await fact.first().locator("dd").textContent()) ?? "";
}
