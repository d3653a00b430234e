import type { DeploymentReport } from "@tenure/protocol";
import { Session, Worker } from "@tenure/sdk";
import { Client } from "pg";
import type { CDPSession, Page } from "playwright-core";
import { startPostgres } from "../support/postgres.ts";
import { startRedis } from "../support/redis.ts";
import { openBrowser, openWindow, signIn } from "./browser.ts";
import { playNode, type Unit, unitsReady } from "./fleet-scene.ts";
import { ADMIN, raiseStage } from "./stage.ts";

// A large fleet in the browser: node tests/dist/console/scale.js [minutes]
// Prints the first paint, how long interactions take, and the memory of the page, minute by minute.

const NODES = Number(process.env.NODES ?? 500);
const DEPLOYMENTS = Number(process.env.DEPLOYMENTS ?? 5_000);
const JOBS_PER_SECOND = Number(process.env.JOBS_PER_SECOND ?? 1_000);
/** Nodes come in some at a time: how a crowd gets in is measured elsewhere. */
const CROWD = 25;
const minutes = Number(process.argv[2] ?? 5);

const postgres = await startPostgres();
const redis = await startRedis();
const stage = await raiseStage({ postgresUri: postgres.uri(), redisUrl: redis.url });
const { url } = stage;
const units = await raiseNodes();
await raiseDeployments();
const traffic = startTraffic();
const browser = await openBrowser();
try {
  const page = await (await openWindow(browser)).newPage();
  await signIn(page, url, ADMIN);
  const paintMs = await page.evaluate(
    `performance.getEntriesByName("first-contentful-paint")[0]?.startTime`,
  );
  console.log(`first paint of the sign-in ${Math.round(Number(paintMs))} ms`);
  await page.goto(url);
  await page.locator(".tiles").waitFor();
  const overviewMs = await page.evaluate(
    `performance.getEntriesByName("first-contentful-paint")[0]?.startTime`,
  );
  console.log(`first paint of the overview ${Math.round(Number(overviewMs))} ms`);
  await watchInteractions(page);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable");
  for (let minute = 0; minute <= minutes; minute++) {
    if (minute > 0) await useFor(page, 60_000);
    const heapMb = (await heapBytes(devtools)) / 1_048_576;
    const rate = traffic.takeEnded() / (minute === 0 ? 1 : 60);
    const { count, p50, p95, max } = await interactions(page);
    console.log(
      `minute ${minute}: heap ${heapMb.toFixed(1)} MB, ${Math.round(rate)} jobs/s ended, ${count} interactions, ` +
        `p50 ${p50} ms, p95 ${p95} ms, max ${max} ms`,
    );
  }
} finally {
  await browser.close();
  await traffic.stop();
  await Promise.all(units.map((unit) => unit.leave()));
  await Promise.all(stage.servers.map((server) => server.kill9()));
  await Promise.all([postgres.discard(), redis.discard()]);
}

async function raiseNodes(): Promise<Unit[]> {
  const made: Unit[] = [];
  while (made.length < NODES) {
    made.push(...Array.from({ length: CROWD }, (_, index) => raiseNode(made.length + index)));
    await unitsReady(made);
  }
  console.log(`${made.length} nodes are connected`);
  return made;
}

function raiseNode(index: number): Unit {
  return playNode({
    url,
    token: ADMIN,
    name: `node-${String(index).padStart(3, "0")}`,
    // Different at every heartbeat, as real ones are.
    sample: () => ({
      cpu_percent: Math.random() * 100,
      memory_percent: 20 + Math.random() * 60,
      memory_mb: 1_000 + Math.random() * 4_000,
    }),
    describe: { labels: { region: ["fra", "ams", "sin"][index % 3]! } },
  });
}

/** By SQL: what is measured is the browser, not how fast they can be created. */
async function raiseDeployments(): Promise<void> {
  const db = new Client({ connectionString: postgres.uri() });
  await db.connect();
  const { rows } = await db.query<{ id: string; address: string; generation: string }>(
    `insert into deployment (name, package_name, package_version, address, generation)
     select 'service-' || lpad(n::text, 5, '0'), '@acme/service-' || n, '1.0.' || n % 9, ($2::text[])[1 + n % $3::int], 1
       from generate_series(1, $1) n
     returning id, address, generation`,
    [DEPLOYMENTS, units.map(({ address }) => address), units.length],
  );
  await db.query(
    `insert into deployment_status (deployment_id, address, state, generation, pid, started_at)
     select id, address, case when random() < 0.01 then 'backoff' else 'running' end, generation, 4711, now()
       from deployment`,
  );
  await db.end();
  console.log(`${rows.length} deployments are there`);
  const byAddress = new Map(units.map((unit) => [unit.address, unit]));
  // Some of them always have news.
  setInterval(() => {
    const row = rows[Math.floor(Math.random() * rows.length)]!;
    const report: DeploymentReport = {
      deployment_id: row.id,
      generation: Number(row.generation),
      state: "running",
      restarts: Math.floor(Math.random() * 5),
    };
    byAddress
      .get(row.address)
      ?.report(report)
      .catch(() => {});
  }, 200).unref();
}

function startTraffic() {
  let ended = 0;
  let open = 0;
  const worker = new Worker({
    url,
    token: ADMIN,
    name: "echo",
    pools: ["echo"],
    capacity: 2_000,
    run: async ({ payload }) => payload,
  });
  const session = new Session({ url, token: ADMIN });
  const OPEN_MAX = 1_000;
  const timer = setInterval(() => {
    for (let count = 0; count < JOBS_PER_SECOND / 20 && open < OPEN_MAX; count++) {
      open += 1;
      session
        .submit({ pool: "echo", payload: { count } })
        .then(
          () => {
            ended += 1;
          },
          () => {},
        )
        .finally(() => {
          open -= 1;
        });
    }
  }, 50);
  return {
    takeEnded() {
      const taken = ended;
      ended = 0;
      return taken;
    },
    async stop() {
      clearInterval(timer);
      await session.close();
      await worker.close({ withinMs: 500 });
    },
  };
}

/** Clicks around as a person does: pages, filters, sorting, scrolling. */
async function useFor(page: Page, ms: number): Promise<void> {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs) {
    for (const name of ["Deployments", "Nodes", "Jobs", "Events", "Overview"]) {
      await page
        .getByRole("navigation", { name: "Pages" })
        .getByText(name, { exact: true })
        .click();
      await page.waitForTimeout(700);
      if (name === "Deployments") {
        await page.getByRole("button", { name: /^Failing/ }).click();
        await page.waitForTimeout(300);
        await page.getByRole("button", { name: /^All/ }).click();
        await page.getByRole("searchbox").pressSequentially("service-04", { delay: 60 });
        await page.waitForTimeout(300);
        await page.getByRole("searchbox").fill("");
        await page.getByRole("button", { name: "Restarts" }).click();
        for (let turn = 0; turn < 10; turn++) {
          await page.mouse.wheel(0, 4_000);
          await page.waitForTimeout(60);
        }
      }
      await page.waitForTimeout(500);
    }
  }
}

async function watchInteractions(page: Page): Promise<void> {
  await page.evaluate(`
    window.interactions = [];
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (entry.interactionId) window.interactions.push(entry.duration);
    }).observe({ type: "event", durationThreshold: 16, buffered: true });`);
}

async function interactions(page: Page) {
  const durations = (await page.evaluate("window.interactions.splice(0)")) as number[];
  const sorted = durations.sort((a, b) => a - b);
  const at = (share: number) => Math.round(sorted[Math.floor(share * sorted.length)] ?? 0);
  return { count: sorted.length, p50: at(0.5), p95: at(0.95), max: at(0.9999) };
}

async function heapBytes(devtools: CDPSession): Promise<number> {
  await devtools.send("HeapProfiler.collectGarbage");
  const { metrics } = await devtools.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "JSHeapUsedSize")?.value ?? 0;
}
