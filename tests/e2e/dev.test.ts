import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { DeploymentView } from "@tenure/protocol";
import { childrenOf } from "@tenure/testing/processes/children";
import { identify, isAlive, signal } from "@tenure/testing/processes/proc";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { expect, test, vi } from "vitest";
import { installPacked } from "./packed.ts";

// It makes an embedded database and starts two node-units: seconds on an idle machine, many times that on a busy one.
const DEADLINE_MS = 180_000;
vi.setConfig({ testTimeout: 3 * DEADLINE_MS });

/** Id and term of each deployment of the demo, by name. */
async function demoOf(
  dev: { stdout(): string },
  dataDir: string,
): Promise<Record<string, [string, number]>> {
  const [, url = ""] = /ready at (http:\S+)/.exec(dev.stdout()) ?? [];
  const headers = {
    authorization: `Bearer ${readFileSync(join(dataDir, "dev-token"), "utf8").trim()}`,
  };
  const response = await fetch(`${url}/api/v1/deployments?limit=500`, { headers });
  const { items } = (await response.json()) as { items: DeploymentView[] };
  return Object.fromEntries(items.map(({ id, name, generation }) => [name, [id, generation]]));
}

test("npm start: two node-units, what runs where, and what a killed one ran runs on the other", async () => {
  const dataDir = scratchDirectory("dev");
  const children = () =>
    ["alpha", "bravo"].flatMap((name) => childrenOf(join(dataDir, "nodes", name)));

  const first = startTenure(["dev", "--port", "0"], { dataDir });
  const [, line = ""] = await first.waitForLine(/^ +(kill -9 \d+)$/, DEADLINE_MS);
  expect(first.stdout()).toMatch(/alpha has pid \d+/);
  expect(nodesOf(first.stdout()).sort()).toEqual(["alpha", "bravo"]);
  const victim = identify(Number(line.split(" ").at(-1)))!;
  signal(victim.pid, "SIGKILL"); // the line it told us to type
  await first.waitForLine(/alpha is gone \(SIGKILL\)/, DEADLINE_MS);
  const [, after = ""] = first.stdout().split("alpha is gone");
  await first.waitForLine(/Start alpha again/, DEADLINE_MS);
  expect(nodesOf(first.stdout().split("alpha is gone")[1] ?? after)).toEqual(["bravo"]);
  const before = await demoOf(first, dataDir);
  expect(await first.stop(60_000)).toMatchObject({ code: 0 });
  expect(isAlive(victim)).toBe(false);
  await until(() => children().length === 0, { what: "every child to be gone" });

  // Again, in the same directory: both are back, and share evenly.
  const second = startTenure(["dev", "--port", "0"], { dataDir });
  const [, again = ""] = await second.waitForLine(/^ +(kill -9 \d+)$/, DEADLINE_MS);
  expect(nodesOf(second.stdout()).sort()).toEqual(["alpha", "bravo"]);
  // What the first run wrote is still there: the same deployments, in the same term or a later one.
  for (const [name, [id, term]] of Object.entries(await demoOf(second, dataDir))) {
    expect([name, id]).toEqual([name, before[name]?.[0]]);
    expect(term, name).toBeGreaterThanOrEqual(before[name]![1]);
  }
  // Stopped while it waits to tell of a loss.
  const lost = identify(Number(again.split(" ").at(-1)))!;
  signal(lost.pid, "SIGKILL");
  await until(() => !isAlive(lost), { what: "alpha to be gone" });
  await wait(300);
  expect(await second.stop(60_000)).toMatchObject({ code: 0 });
  expect(second.stderr()).toBe("");
  expect(children()).toEqual([]);
});

test("an installed package runs the demo and has the files it names; its node-units end when it is killed", async () => {
  const dataDir = scratchDirectory("dev");
  const cwd = await installPacked();
  const bin = join(cwd, "node_modules/@tenure/cli/bin/tenure.js");
  const dev = startTenure(["dev", "--port", "0"], { dataDir, cwd, bin });
  await dev.waitForLine(/^ +kill -9 \d+$/, DEADLINE_MS);
  expect(nodesOf(dev.stdout()).sort()).toEqual(["alpha", "bravo"]);
  const [, example = ""] = /node (\S+main\.js)$/m.exec(dev.stdout()) ?? [];
  expect(existsSync(join(cwd, example)), example).toBe(true);
  const [, url = ""] = /console (http:\S+)/.exec(dev.stdout()) ?? [];
  expect(await (await fetch(url)).text()).toContain("<script");
  const pids = [...dev.stdout().matchAll(/has pid (\d+)/g)].map(
    ([, pid]) => identify(Number(pid))!,
  );
  expect(pids).toHaveLength(2);
  await dev.kill9();
  await until(() => !pids.some(isAlive), { deadlineMs: 60_000, what: "the node-units to end" });
  for (const name of ["alpha", "bravo"])
    expect(childrenOf(join(dataDir, "nodes", name))).toEqual([]);
});

/** The nodes that own deployments, by the table it printed. */
function nodesOf(output: string): string[] {
  const rows = [...output.matchAll(/^ +demo-\w+ +deployment +(\w+) +running/gm)];
  expect(rows).toHaveLength(5);
  return [...new Set(rows.map(([, node]) => node!))];
}
