import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { ROUTES } from "@tenure/protocol";
import type { Page } from "playwright-core";
import { startPostgres } from "../support/postgres.ts";
import { startRedis } from "../support/redis.ts";
import { repositoryRoot } from "../support/repository.ts";
import { until } from "../support/until.ts";
import { NARROW, openBrowser, openWindow, signIn, WIDE } from "./browser.ts";
import { createOperator } from "./fleet-scene.ts";
import { raiseShowcase, type Showcase } from "./showcase.ts";
import { ADMIN, raiseStage } from "./stage.ts";

// Takes the pictures of the documentation: node tests/dist/console/screenshots.js [directory] [--all]

const [directory = join(repositoryRoot, "docs/img"), mode] = process.argv.slice(2);

function pagesOf({ deployments, signer, units }: Showcase): [name: string, path: string][] {
  return [
    ["overview", "/"],
    ["nodes", "/nodes"],
    ["node", `/nodes/${units[1]!.address}`],
    ["deployments", "/deployments"],
    ["deployment", `/deployments/${deployments.failing}`],
    ["deployment-pending", `/deployments/${deployments.pending}`],
    ["logs", `/deployments/${deployments.running}/logs`],
    ["history", `/deployments/${deployments.running}/history`],
    ["jobs", "/jobs"],
    ["job", "job"],
    ["sessions", "/sessions"],
    ["signers", "/signers"],
    ["signer", `/signers/${encodeURIComponent(signer)}`],
    ["cluster", "/cluster"],
    ["events", "/events"],
  ];
}

const VIEWS = [
  { name: "light", viewport: WIDE, colors: "light" },
  { name: "dark", viewport: WIDE, colors: "dark" },
  { name: "narrow-light", viewport: NARROW, colors: "light" },
  { name: "narrow-dark", viewport: NARROW, colors: "dark" },
] as const;

mkdirSync(directory, { recursive: true });
const postgres = await startPostgres();
const redis = await startRedis();
const stage = await raiseStage({
  postgresUri: postgres.uri(),
  redisUrl: redis.url,
  instances: 2,
  env: { TENURE_NONCE_HOLD_TTL_MS: "10000" },
});
const { url } = stage;
const showcase = await raiseShowcase({ url, token: ADMIN });
await stage.spoilInbox(Buffer.from([0x7b, 0x22, 0x6b, 0x00, 0xff]));
const browser = await openBrowser();
try {
  const waitMs = Number(process.env.SCENE_MS ?? 20_000);
  await new Promise((resolve) => setTimeout(resolve, waitMs)); // so that the plots have something to show
  for (const { name, viewport, colors } of VIEWS) {
    const window = await openWindow(browser, { viewport, colors });
    const page = await window.newPage();
    await signIn(page, url, ADMIN);
    for (const [title, path] of pagesOf(showcase)) {
      if (path === "job") await openJob(page);
      else await page.goto(url + path);
      await settled(page);
      await page.screenshot({ path: join(directory, `${title}-${name}.png`) });
    }
    if (mode === "--all") await more(page, name);
    await window.close();
  }
} finally {
  await browser.close();
  await showcase.stop();
  await stage.stop();
  await Promise.all([postgres.discard(), redis.discard()]);
}

/** One that took more than one attempt, where there is one. */
async function openJob(page: Page): Promise<void> {
  const { items } = await createOperator(url, ADMIN).call(ROUTES.listJobs, {
    query: { limit: 500 },
  });
  const ended = items.filter(({ outcome }) => outcome);
  const job = ended.find(({ attempt_id }) => attempt_id > 1) ?? ended[0];
  await page.goto(`${url}/jobs/${job?.job_id}`);
}

/** Everything read and drawn. */
async function settled(page: Page): Promise<void> {
  await page.locator("h1").first().waitFor();
  await until(async () => (await page.locator(".spinner").count()) === 0, {
    what: `the page ${page.url()} to be read`,
  });
  await page.waitForTimeout(400);
}

async function more(page: Page, view: string): Promise<void> {
  await page.goto(`${url}/deployments`);
  await page.getByRole("button", { name: "New deployment" }).click();
  await page.waitForTimeout(200);
  await page.screenshot({ path: join(directory, `form-${view}.png`) });
  await page.goto(`${url}/`);
  await settled(page);
  await page.screenshot({ path: join(directory, `overview-full-${view}.png`), fullPage: true });
}
