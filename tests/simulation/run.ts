import { join } from "node:path";
import { readCommandLine } from "@tenure/testing/command-line";
import { runClaims } from "./claims/world.ts";
import { loadServerParts } from "./jobs/load.ts";
import { runJobs } from "./jobs/world.ts";
import { simulateScale } from "./scale/report.ts";

const USAGE = `npm run simulate [-- options]: the question of scale, as in docs/scale.md

  --sizes a,b                of fleets, in node-units (default 100,1000,10000)
  --deployments-per-node N   default 10
  --nodes-per-instance N     default 500
  --seed N                   default 1
  --only TEXT                rows whose name has it
  --svg FILE                 with a plot
  --keep FILE                rows that are in the file are not run again, others are added
  --claims N, --jobs N       so many seeds of those instead, each checked
  --from N                   the first of them (default 1)`;

const { values, numberOf } = readCommandLine(USAGE, {
  options: {
    sizes: { type: "string", default: "100,1000,10000" },
    "deployments-per-node": { type: "string", default: "10" },
    "nodes-per-instance": { type: "string", default: "500" },
    seed: { type: "string", default: "1" },
    only: { type: "string", default: "" },
    svg: { type: "string" },
    keep: { type: "string" },
    claims: { type: "string", default: "0" },
    jobs: { type: "string", default: "0" },
    from: { type: "string", default: "1" },
  },
});

const SERVER_DIST = join(process.cwd(), "packages/server/dist");
const claims = numberOf("claims", values.claims, { least: 0 });
const jobs = numberOf("jobs", values.jobs, { least: 0 });
const from = numberOf("from", values.from, { least: 0 });

if (claims + jobs === 0) {
  const { "deployments-per-node": deployments, "nodes-per-instance": nodes } = values;
  await simulateScale({
    sizes: values.sizes.split(",").map((size) => numberOf("sizes", size, { least: 1 })),
    deploymentsPerNode: numberOf("deployments-per-node", deployments, { least: 1 }),
    nodesPerInstance: numberOf("nodes-per-instance", nodes, { least: 1 }),
    seed: numberOf("seed", values.seed, { least: 0 }),
    serverDist: SERVER_DIST,
    only: values.only,
    svgFile: values.svg,
    keepFile: values.keep,
    print: (line) => console.log(line),
    told: (line) => console.error(line),
  });
}

let isGreen = await runSeeds("claims", { from, count: claims }, runClaims);
if (jobs > 0) {
  const parts = await loadServerParts(SERVER_DIST);
  const run = (seed: number) => runJobs(parts, seed);
  isGreen = (await runSeeds("jobs", { from, count: jobs }, run)) && isGreen;
}
process.exitCode = isGreen ? 0 : 1;

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
