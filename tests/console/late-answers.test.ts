import { setTimeout as wait } from "node:timers/promises";
import { ROUTES } from "@tenure/protocol";
import type { Admin } from "@tenure/sdk";
import { SLEEPER } from "@tenure/testing/fleet/deployments";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { Client } from "pg";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { openBrowser, openWindow, signIn } from "./browser.ts";
import { createOperator } from "./fleet-scene.ts";
import { ADMIN, raiseStage, type Stage } from "./stage.ts";

// A real browser on a busy machine: only never is wrong.
vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });
const PATIENCE = { timeout: 90_000 };
/** A page draws what it heard within half a second. */
const DRAWN_MS = 1_000;

let database: TestDatabase;
let stage: Stage;
let browser: Browser;
let page: Page;
let operator: Admin;
let db: Client;

beforeAll(async () => {
  const { postgresAdminUri, redisUrl } = stores();
  database = await createDatabase(postgresAdminUri);
  db = new Client({ connectionString: database.uri });
  await db.connect();
  stage = await raiseStage({ postgresUri: database.uri, redisUrl });
  operator = createOperator(stage.url, ADMIN);
  browser = await openBrowser();
  page = await (await openWindow(browser)).newPage();
  await signIn(page, stage.url, ADMIN);
});
afterAll(async () => {
  await browser?.close();
  await stage?.stop();
  await db?.end();
  await database?.drop();
});

const create = (name: string) =>
  operator.call(ROUTES.createDeployment, { body: { name, command: SLEEPER } });

const row = (name: string) => page.locator(".list-row", { hasText: name });

/** The next such request is answered by the server at once, and the page has the answer when it is let through. */
async function holdNext(url: RegExp): Promise<{ answered: Promise<void>; letThrough(): void }> {
  let letThrough = (): void => {};
  let answer = (): void => {};
  const isLetThrough = new Promise<void>((resolve) => {
    letThrough = resolve;
  });
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  await page.route(
    url,
    async (route) => {
      const response = await route.fetch();
      answer();
      await isLetThrough;
      await route.fulfill({ response });
    },
    { times: 1 },
  );
  return { answered, letThrough };
}

test("a list that arrives late neither hides what is new nor brings back what is gone", async () => {
  const doomed = await create("a-doomed");
  await page.goto(`${stage.url}/deployments`);
  await row("a-doomed").waitFor(PATIENCE);
  await page.locator(".side-foot .live-live").waitFor(PATIENCE);
  // So many changes at once are read as a list.
  const list = await holdNext(/\/api\/v1\/deployments\?/);
  await db.query(
    "insert into deployment (name, command) select 'crowd-' || n, $1 from generate_series(1, 40) as n",
    [SLEEPER],
  );
  await list.answered;
  await operator.call(ROUTES.deleteDeployment, { params: { id: doomed.id } });
  await create("a-newer");
  await row("a-newer").waitFor(PATIENCE);
  const shown = page.waitForResponse(/\/api\/v1\/deployments\?/);
  list.letThrough();
  await shown;
  await wait(DRAWN_MS);
  expect(await row("a-doomed").count()).toBe(0);
  expect(await row("a-newer").count()).toBe(1);
});

test("what changes during a reading is read after it", async () => {
  const { id } = await create("changing");
  await row("changing").getByRole("link").first().click();
  const revisions = await holdNext(/\/revisions/);
  await page.getByRole("link", { name: "History" }).click();
  await revisions.answered;
  const heard = page.waitForResponse(new RegExp(`/deployments/${id}$`));
  await operator.call(ROUTES.updateDeployment, { params: { id }, body: { env: { HUE: "red" } } });
  await heard;
  await wait(DRAWN_MS);
  revisions.letThrough();
  await page.locator(".revision").first().getByText("env HUE").waitFor(PATIENCE);
});
