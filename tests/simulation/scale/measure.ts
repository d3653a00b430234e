import { type ListedDeployment, type Member, TenureError } from "@tenure/protocol";
import { claimPolicyOf } from "../../../packages/agent/src/claim/policy.ts";
import { createPasses } from "../../../packages/agent/src/loop/pass.ts";
import type { LoopPorts } from "../../../packages/agent/src/loop/ports.ts";
import { createChance } from "../chance.ts";
import { addressOf, memberOf } from "./fleet.ts";
import { rowsOf } from "./scenarios.ts";

const PASSES = 15;

/** CPU of a pass on a node of such a fleet: the agent's own list, policy and plan, and nothing of the simulation. */
export async function measurePasses(size: {
  nodes: number;
  deployments: number;
}): Promise<string[]> {
  const lines = ["| a pass of the agent, with | CPU |", "|---|---|"];
  const first = await createMeasured(size, 0);
  lines.push(`| the whole list to read and index | ${milliseconds(await cpuOf(first.pass))} |`);
  lines.push(`| nothing changed | ${milliseconds(await medianOf(first.pass))} |`);
  lines.push(`| one row changed, none free | ${milliseconds(await medianOf(first.changedPass))} |`);
  for (const free of [10, Math.round(size.deployments / 10), size.deployments]) {
    const measured = await createMeasured(size, free);
    await measured.pass();
    const ms = await medianOf(measured.changedPass);
    lines.push(`| ${free.toLocaleString("en")} rows free | ${milliseconds(ms)} |`);
  }
  return lines;
}

async function createMeasured(size: { nodes: number; deployments: number }, free: number) {
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
