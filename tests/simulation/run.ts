import { join } from "node:path";
import { parseArgs } from "node:util";
import { runClaims } from "./claims/world.ts";
import { loadServerParts } from "./jobs/load.ts";
import { runJobs } from "./jobs/world.ts";
import { simulateScale } from "./scale/report.ts";

// `npm run simulate`: the seeds of claims and jobs, or with --nodes the question of scale. docs/scale.md says what for.

const { values } = parseArgs({
  options: {
    claims: { type: "string" },
    jobs: { type: "string" },
    from: { type: "string", default: "1" },
    nodes: { type: "string" },
    deployments: { type: "string" },
    instances: { type: "string" },
    seed: { type: "string", default: "1" },
    svg: { type: "string" },
  },
});

const CLAIMS = 1_000;
const JOBS = 300;

if (values.nodes !== undefined) {
  const nodes = Number(values.nodes);
  await simulateScale({
    nodes,
    deployments: Number(values.deployments ?? 10 * nodes),
    instances: Number(values.instances ?? Math.max(1, Math.round(nodes / 1_000))),
    seed: Number(values.seed),
    svgFile: values.svg,
    print: (line) => console.log(line),
    told: (line) => console.error(line),
  });
} else {
  const isChosen = values.claims !== undefined || values.jobs !== undefined;
  const from = Number(values.from);
  const claims = Number(values.claims ?? (isChosen ? 0 : CLAIMS));
  const jobs = Number(values.jobs ?? (isChosen ? 0 : JOBS));
  let isGreen = await runSeeds("claims", { from, count: claims }, runClaims);
  if (jobs > 0) {
    const parts = await loadServerParts(join(process.cwd(), "packages/server/dist"));
    const run = (seed: number) => runJobs(parts, seed);
    isGreen = (await runSeeds("jobs", { from, count: jobs }, run)) && isGreen;
  }
  process.exitCode = isGreen ? 0 : 1;
}

async function runSeeds(
  what: string,
  { from, count }: { from: number; count: number },
  run: (seed: number) => Promise<{ violations: readonly string[]; steps: number }>,
): Promise<boolean> {
  if (count === 0) return true;
  const startedMs = performance.now();
  const startedCpu = process.cpuUsage();
  let steps = 0;
  let bad = 0;
  for (let seed = from; seed < from + count; seed++) {
    const { violations, steps: taken } = await run(seed);
    steps += taken;
    if (violations.length === 0) continue;
    bad += 1;
    console.log(`${what} seed ${seed}: ${violations.slice(0, 3).join("; ")}`);
  }
  const cpu = process.cpuUsage(startedCpu);
  const cpuMs = (cpu.user + cpu.system) / 1_000;
  console.log(
    `${what}: seeds ${from} to ${from + count - 1}, ${bad} with a violation, ${steps} steps, ` +
      `${((performance.now() - startedMs) / 1_000).toFixed(1)} s, ${(cpuMs / count).toFixed(1)} ms of CPU per seed`,
  );
  return bad === 0;
}
