import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { startFleet } from "../prove/fleet.ts";
import { repositoryRoot } from "../support/repository.ts";
import { until } from "../support/until.ts";
import { NARROW, openBrowser, openWindow, signIn, WIDE } from "./browser.ts";
import { raiseShowcase, type Showcase } from "./showcase.ts";

// Takes the pictures of the documentation: node tests/dist/console/screenshots.js [directory] [--all]

const TOKEN = "showcase-admin";
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
const fleet = await startFleet("redis");
const env = { TENURE_TOKENS: `admin:${TOKEN}`, TENURE_NONCE_HOLD_TTL_MS: "10000" };
const { url } = await fleet.startInstance({ env });
await fleet.startInstance({ env });
const showcase = await raiseShowcase({ url, token: TOKEN });
const browser = await openBrowser();
try {
  const waitMs = Number(process.env.SCENE_MS ?? 20_000);
  await new Promise((resolve) => setTimeout(resolve, waitMs)); // so that the plots have something to show
  for (const { name, viewport, colors } of VIEWS) {
    const window = await openWindow(browser, { viewport, colors });
    const page = await window.newPage();
    await signIn(page, url, TOKEN);
    for (const [title, path] of pagesOf(showcase)) {
      await page.goto(url + path);
      await settled(page);
      await page.screenshot({ path: join(directory, `${title}-${name}.png`) });
    }
    if (mode === "--all") await more(page, name);
    await window.close();
  }
} finally {
  await browser.close();
  await showcase.stop();
  await fleet.stop();
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
