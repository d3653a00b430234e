import { readFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { chosen, readCommandLine, renderChoices } from "@tenure/testing/command-line";
import { sweepOrphans } from "@tenure/testing/processes/process-registry";
import { findPostgres, findRedis } from "@tenure/testing/programs/programs";
import { commitNow } from "@tenure/testing/repository";
import { BENCHES } from "./benches.ts";

const parts = BENCHES.filter((bench) => bench.parts).map(
  (bench) => `  --part of ${bench.name}: ${bench.parts?.join(", ")}`,
);
const USAGE =
  "npm run bench [-- <name> … --seed N --part P --nodes N --rows N]\n\n" +
  `${renderChoices(BENCHES)}\n\n${parts.join("\n")}\n` +
  "  --jobs N, --mode M  jobs per count, and the only mode, of jobs --part counts\n" +
  "  --nodes N, --rows N  node-units and deployments of fleet";

const { values, positionals, refuse, numberOf } = readCommandLine(USAGE, {
  allowPositionals: true,
  options: {
    seed: { type: "string", default: "1" },
    part: { type: "string" },
    jobs: { type: "string" },
    mode: { type: "string" },
    nodes: { type: "string" },
    rows: { type: "string" },
  },
});
const benches = chosen(BENCHES, positionals, refuse);
const seed = numberOf("seed", values.seed, { least: 0 });
const { part, mode } = values;
if (part !== undefined && !benches.some((bench) => bench.parts?.includes(part)))
  refuse(`there is no part ${part}`);
const sizes = {
  ...(values.jobs !== undefined && { jobs: numberOf("jobs", values.jobs, { least: 1 }) }),
  ...(values.nodes !== undefined && { nodes: numberOf("nodes", values.nodes, { least: 1 }) }),
  ...(values.rows !== undefined && { rows: numberOf("rows", values.rows, { least: 0 }) }),
};
await sweepOrphans();
console.log(`${machine()}, seed ${seed}\n${await versions()}`);
for (const bench of benches) {
  console.log(`\n${bench.name}: ${bench.summary}; load before ${load()}\n`);
  await bench.run({ seed, part, mode, ...sizes, print: (line) => console.log(line) });
}
// By name: what a run has left open must not keep it alive. Its processes end with it.
process.exit(0);

function machine(): string {
  const cores = cpus();
  const memoryGb = Math.round(totalmem() / 2 ** 30);
  return `${cores.length} × ${cores[0]?.model.trim()}, ${memoryGb} GB; commit ${commitNow()}`;
}

function load(): string {
  return loadavg()[0]!.toFixed(1);
}

async function versions(): Promise<string> {
  const [postgres, redis] = await Promise.all([findPostgres(), findRedis()]);
  const { dependencies } = JSON.parse(
    readFileSync(new URL("../package.json", import.meta.url), "utf8"),
  ) as { dependencies: Record<string, string> };
  const peers = Object.entries(dependencies).map(([name, version]) => `${name} ${version}`);
  const parts = [`Node ${process.version}`, `PostgreSQL ${postgres.version}`];
  return [...parts, `Redis ${redis.version}`, ...peers].join(", ");
}
