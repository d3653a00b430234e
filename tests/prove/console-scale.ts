import assert from "node:assert";
import type { DeploymentReport } from "@tenure/protocol";
import { Session, Worker } from "@tenure/sdk";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { startRedis } from "@tenure/testing/stores/redis";
import { Client } from "pg";
import type { CDPSession, Page } from "playwright-core";
import { openBrowser, openWindow, signIn } from "../console/browser.ts";
import { playNode, type Unit, unitsReady } from "../console/fleet-scene.ts";
import { ADMIN, raiseStage } from "../console/stage.ts";

import type { Proof, ProofRun, Size } from "./proof.ts";

interface Scale {
  nodes: number;
  deployments: number;
  jobsPerSecond: number;
  rounds: number;
  roundMs: number;
}

const SCALES: Record<Size, Scale> = {
  ci: { nodes: 50, deployments: 500, jobsPerSecond: 100, rounds: 2, roundMs: 8_000 },
  full: { nodes: 500, deployments: 5_000, jobsPerSecond: 1_000, rounds: 5, roundMs: 60_000 },
};
/** Nodes come in some at a time: how a crowd gets in is measured elsewhere. */
const CROWD = 25;
const PAINT_GOAL_MS = 1_000;
/** Goal for a person's patience; a busy machine is slower, and only far beyond it something is broken. */
const P95_GOAL_MS = 200;
const P95_MS_MAX = 10_000;
/** What a page may keep more than after its first round: lists it had not yet opened, not every job that went by. */
const HEAP_GROWTH_MB_MAX = 30;

/** A large fleet in a real browser: it stays responsive, and its memory stays where it is. */
export const consoleScale: Proof = {
  name: "console-scale",
  summary: "a large busy fleet in the console: interactions, memory over minutes, first paint",
  async run({ size, print }: ProofRun) {
    const scale = SCALES[size];
    const [postgres, redis] = await Promise.all([startPostgres(), startRedis()]);
    const stage = await raiseStage({ postgresUri: postgres.uri(), redisUrl: redis.url });
    const units = await raiseNodes(stage.url, scale.nodes);
    const news = await raiseDeployments(postgres.uri(), units, scale.deployments);
    const traffic = startTraffic(stage.url, scale.jobsPerSecond);
    const browser = await openBrowser();
    try {
      print(
        `${scale.nodes} nodes, ${scale.deployments} deployments, ${scale.jobsPerSecond} jobs/s offered`,
      );
      const page = await (await openWindow(browser)).newPage();
      await signIn(page, stage.url, ADMIN);
      await page.goto(stage.url);
      await page.locator(".tiles").waitFor();
      const paintMs = Number(
        await page.evaluate(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime`),
      );
      print(`first paint of the overview ${Math.round(paintMs)} ms (goal ${PAINT_GOAL_MS} ms)`);
      await useRounds(page, { scale, traffic, print });
    } finally {
      await browser.close();
      clearInterval(news);
      await traffic.stop();
      await Promise.all(units.map((unit) => unit.leave()));
      await stage.stop();
      await Promise.all([postgres.discard(), redis.discard()]);
    }
  },
};

async function useRounds(
  page: Page,
  {
    scale: { rounds, roundMs },
    traffic,
    print,
  }: { scale: Scale; traffic: Traffic; print: ProofRun["print"] },
): Promise<void> {
  await watchInteractions(page);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable");
  const heapsMb: number[] = [];
  for (let round = 1; round <= rounds; round++) {
    traffic.takeEnded();
    const startedMs = performance.now();
    await useFor(page, roundMs);
    const seconds = (performance.now() - startedMs) / 1_000;
    const rate = traffic.takeEnded() / seconds;
    const heapMb = (await heapBytes(devtools)) / 1_048_576;
    heapsMb.push(heapMb);
    const { count, p50, p95, max } = await interactions(page);
    print(
      `after ${Math.round((round * roundMs) / 1_000)} s of use: ${Math.round(rate)} jobs/s ended, heap ${heapMb.toFixed(1)} MB, ` +
        `${count} interactions: p50 ${p50} ms, p95 ${p95} ms (goal ${P95_GOAL_MS} ms), max ${max} ms`,
    );
    assert(rate > 0 && count > 0, "jobs ended and somebody clicked");
    assert(p95 <= P95_MS_MAX, `p95 of interactions is ${p95} ms`);
  }
  const grownMb = heapsMb.at(-1)! - heapsMb[0]!;
  assert(grownMb <= HEAP_GROWTH_MB_MAX, `the page keeps ${grownMb.toFixed(1)} MB more`);
}

async function raiseNodes(url: string, count: number): Promise<Unit[]> {
  const made: Unit[] = [];
  while (made.length < count) {
    made.push(...Array.from({ length: CROWD }, (_, index) => raiseNode(url, made.length + index)));
    await unitsReady(made);
  }
  return made;
}

function raiseNode(url: string, index: number): Unit {
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

/** By SQL: what is measured is the browser, not how fast they can be created. Some of them have news until cleared. */
async function raiseDeployments(
  postgresUri: string,
  units: readonly Unit[],
  count: number,
): Promise<NodeJS.Timeout> {
  const db = new Client({ connectionString: postgresUri });
  await db.connect();
  const { rows } = await db.query<{ id: string; address: string; generation: string }>(
    `insert into deployment (name, package_name, package_version, address, generation)
     select 'service-' || lpad(n::text, 5, '0'), '@acme/service-' || n, '1.0.' || n % 9, ($2::text[])[1 + n % $3::int], 1
       from generate_series(1, $1) n
     returning id, address, generation`,
    [count, units.map(({ address }) => address), units.length],
  );
  await db.query(
    `insert into deployment_status (deployment_id, address, state, generation, pid, started_at)
     select id, address, case when random() < 0.01 then 'backoff' else 'running' end, generation, 4711, now()
       from deployment`,
  );
  await db.end();
  const byAddress = new Map(units.map((unit) => [unit.address, unit]));
  return setInterval(() => {
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
  }, 200);
}

interface Traffic {
  /** How many have ended since the last look. */
  takeEnded(): number;
  stop(): Promise<void>;
}

function startTraffic(url: string, jobsPerSecond: number): Traffic {
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
    for (let count = 0; count < jobsPerSecond / 20 && open < OPEN_MAX; count++) {
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
