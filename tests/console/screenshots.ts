import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTES } from "@tenure/protocol";
import { repositoryRoot } from "@tenure/testing/repository";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import type { Browser, Page } from "playwright-core";
import { NARROW, openBrowser, openWindow, signIn, WIDE } from "./browser.ts";
import { createOperator } from "./fleet-scene.ts";
import { raiseShowcase, type Showcase } from "./showcase.ts";
import { ADMIN, raiseStage } from "./stage.ts";

// The pictures of the documentation:    node tests/dist/console/screenshots.js
// Every page in every view, to look at: node tests/dist/console/screenshots.js DIRECTORY
// The plots show the last quarter of an hour; SCENE_MINUTES is how much of it there is (1 unless set).

const VIEWS = {
  light: { viewport: WIDE, colors: "light" },
  dark: { viewport: WIDE, colors: "dark" },
  "narrow-light": { viewport: NARROW, colors: "light" },
  "narrow-dark": { viewport: NARROW, colors: "dark" },
} as const;
type ViewName = keyof typeof VIEWS;

/** Each page once, and some again in other clothes. */
const PICTURES: Partial<Record<string, ViewName[]>> = {
  overview: ["light", "dark", "narrow-dark"],
  nodes: ["dark"],
  node: ["light"],
  deployments: ["light", "narrow-light"],
  deployment: ["light"],
  logs: ["dark"],
  history: ["light"],
  jobs: ["light"],
  job: ["dark", "narrow-light"],
  sessions: ["light"],
  turn: ["light"],
  signers: ["dark"],
  signer: ["light"],
  cluster: ["dark"],
  events: ["light"],
};
const QUALITY = 0.82;

const [given] = process.argv.slice(2);
const directory = given ?? join(repositoryRoot, "docs/img");
const sceneMs = Number(process.env.SCENE_MINUTES ?? 1) * 60_000;

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
  await new Promise((resolve) => setTimeout(resolve, sceneMs));
  for (const view of Object.keys(VIEWS) as ViewName[]) await takeAll(view);
} finally {
  await browser.close();
  await showcase.stop();
  await stage.stop();
  await Promise.all([postgres.discard(), redis.discard()]);
}

async function takeAll(view: ViewName): Promise<void> {
  const window = await openWindow(browser, VIEWS[view]);
  const page = await window.newPage();
  await signIn(page, url, ADMIN);
  for (const [name, path] of await pagesOf(showcase)) {
    if (given === undefined && !PICTURES[name]?.includes(view)) continue;
    await page.goto(url + path);
    await settled(page);
    const png = await page.screenshot();
    const file = join(directory, `console-${name}-${view}`);
    if (given) writeFileSync(`${file}.png`, png);
    else writeFileSync(`${file}.webp`, await asWebp(browser, png));
  }
  await window.close();
}

async function pagesOf({ deployments, signer, units }: Showcase): Promise<[string, string][]> {
  const operator = createOperator(url, ADMIN);
  const items = await until(
    async () => (await operator.call(ROUTES.listJobs, { query: { limit: 100 } })).items,
    { deadlineMs: 60_000, everyMs: 1_000, what: "the list of jobs" },
  );
  const ended = items.filter(({ outcome }) => outcome);
  // One that took more than one attempt, where there is one.
  const job = ended.find(({ attempt_id }) => attempt_id > 1) ?? ended[0];
  return [
    ["overview", "/"],
    ["nodes", "/nodes"],
    ["node", `/nodes/${units[1]!.address}`],
    ["deployments", "/deployments"],
    ["deployment", `/deployments/${deployments.failing}`],
    ["pending", `/deployments/${deployments.pending}`],
    ["logs", `/deployments/${deployments.running}/logs`],
    ["history", `/deployments/${deployments.running}/history`],
    ["jobs", "/jobs"],
    ["job", `/jobs/${job?.job_id}`],
    ["sessions", "/sessions"],
    ["turn", `/turns/${items.find(({ turn_id }) => turn_id)?.turn_id}`],
    ["signers", "/signers"],
    ["signer", `/signers/${encodeURIComponent(signer)}`],
    ["cluster", "/cluster"],
    ["events", "/events"],
  ];
}

/** Everything read and drawn. */
async function settled(page: Page): Promise<void> {
  await page.locator("h1").first().waitFor();
  await until(async () => (await page.locator(".spinner").count()) === 0, {
    deadlineMs: 30_000,
    what: `the page ${page.url()} to be read`,
  });
  await page.waitForTimeout(400);
}

/** A quarter of the bytes, by the browser's own encoder. */
async function asWebp(in_: Browser, png: Buffer): Promise<Buffer> {
  const blank = await in_.newPage();
  const data = (await blank.evaluate(`(async () => {
    const image = new Image();
    image.src = "data:image/png;base64,${png.toString("base64")}";
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", ${QUALITY});
  })()`)) as string;
  await blank.close();
  return Buffer.from(data.slice(data.indexOf(",") + 1), "base64");
}
