import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type ListedDeployment, type Member, TenureError } from "@tenure/protocol";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/loop-ports.ts";
import { createPasses } from "../../../packages/agent/src/loop/pass.ts";
import { createChance } from "../chance.ts";
import { addressOf, memberOf, rowsOf } from "./fleet.ts";

const PASSES = 15;

interface Size {
  nodes: number;
  deployments: number;
}

/** CPU of a pass on a node of such a fleet: the agent's own list, policy and plan, and nothing of the simulation. */
export async function measurePasses(sizes: readonly Size[]): Promise<string[]> {
  const lines = [
    "| node-units × deployments | whole list read | nothing changed | one row changed | 10 rows free | all rows free |",
    "|---|---|---|---|---|---|",
  ];
  for (const size of sizes) {
    const owned = await createMeasured(size, 0);
    const whole = await cpuOf(owned.pass);
    const unchanged = await medianOf(owned.pass);
    const changed = await medianOf(owned.changedPass);
    const free = [await withFree(size, 10), await withFree(size, size.deployments)];
    const cells = [whole, unchanged, changed, ...free].map(milliseconds);
    const name = [size.nodes, size.deployments].map((count) => count.toLocaleString("en"));
    lines.push(`| ${name.join(" × ")} | ${cells.join(" | ")} |`);
  }
  return lines;
}

async function withFree(size: Size, free: number): Promise<number> {
  const measured = await createMeasured(size, free);
  await measured.pass();
  return medianOf(measured.changedPass);
}

async function createMeasured(size: Size, free: number) {
  const chance = createChance(1);
  const addresses = Array.from({ length: size.nodes }, () => addressOf(chance.fraction));
  const members: ReadonlyMap<string, Member> = new Map(
    addresses.map((address) => [address, memberOf(address)]),
  );
  const rows = rowsOf(size.deployments, (nth) => (nth < free ? "" : addresses[nth % size.nodes]!));
  const last = rows.at(-1)!;
  let pending: { answer: "full" | "delta" | "unchanged"; items: ListedDeployment[] } = {
    answer: "full",
    items: rows,
  };
  let revision = 0;
  const conflict = () => Promise.reject(new TenureError("ERR_CLAIM_CONFLICT", { candidates: 0 }));
  const ports: LoopPorts = {
    me: addresses[0]!,
    clock: { monotonicMs: () => 0, after: () => () => {} },
    random: chance.fraction,
    members: async () => ({ view: "ready", members }),
    async list() {
      const answer = { ...pending, removed: [], resource_usage: {}, revision: `r${++revision}` };
      pending = { answer: "unchanged", items: [] };
      return answer;
    },
    release: async () => [],
    claim: conflict,
    reserve: conflict,
    changed() {},
    avoids: () => false,
    log() {},
  };
  const policy = claimPolicyOf("deployment_count");
  const passes = createPasses(ports, { intervalMs: 5_000, policy });
  return {
    pass: passes.pass,
    changedPass() {
      pending = { answer: "delta", items: [{ ...last, generation: ++revision }] };
      return passes.pass();
    },
  };
}

interface ListParts {
  createDeploymentCache(): { put(row: unknown): boolean };
  answerSubset(options: unknown): { revision: string; more?: boolean };
  listParts(answer: unknown): Buffer[];
}

const LISTED_ROWS = 10_000;
const REPEATS = 10;

/** CPU of an instance for the parts of a list, by the built server's own functions, JSON included. */
export async function measureLists(serverDist: string): Promise<string> {
  const load = async (file: string) =>
    (await import(pathToFileURL(join(serverDist, "deployments/cache", file)).href)) as ListParts;
  const { createDeploymentCache } = await load("deployment-cache.js");
  const { answerSubset } = await load("list-subset.js");
  const { listParts } = await load("list-delta.js");
  const at = new Date(0);

  async function measure(addressOfRow: (nth: number) => string, known: number): Promise<number> {
    const cache = createDeploymentCache();
    const rows = rowsOf(LISTED_ROWS, addressOfRow);
    for (const row of rows)
      cache.put({ ...row, args: [], env: {}, created_at: at, updated_at: at });
    const reader = { ...memberOf("reader"), claim_policy: "deployment_count" };
    const options = {
      ...{ cache, origin: "o", reader, owners: [], refused: new Map(), answerBytesMax: 2 ** 30 },
      ...{ matches: () => true, samples: () => ({}) },
    };
    const { revision } = answerSubset({ ...options, revision: undefined });
    const from = revision.replace(/\d+$/, `${known}`);
    const write = () => Buffer.concat(listParts(answerSubset({ ...options, revision: from })));
    const ms = await medianOf(async () => {
      for (let nth = 0; nth < REPEATS; nth++) write();
    });
    return ms / REPEATS;
  }

  const unchanged = await measure(() => "", LISTED_ROWS);
  const own = (await measure(() => "reader", 1)) / LISTED_ROWS;
  const owners = (await measure((nth) => `node-${nth}`, 1)) / LISTED_ROWS;
  const free = await measure(() => "", 1);
  const microseconds = (ms: number) => `${(1_000 * ms).toFixed(1)} µs`;
  return (
    `An instance, per row of a list: ${microseconds(own)}; per owner: ${microseconds(owners)}; ` +
    `for free rows: ${microseconds(free)}; for "unchanged": ${microseconds(unchanged)}.`
  );
}

async function cpuOf(act: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await act();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}

async function medianOf(act: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let nth = 0; nth < PASSES; nth++) times.push(await cpuOf(act));
  return times.sort((a, b) => a - b)[PASSES >> 1]!;
}

const milliseconds = (ms: number): string =>
  ms < 0.1 ? "below 0.1 ms" : `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
