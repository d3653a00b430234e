import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { BENCHES } from "./benches.ts";
import { findPostgres, findRedis, sweepOrphans } from "./support.ts";

// Not only the exit code: what a failed run has left open must not keep it alive. Its processes end with it.
process.exit(await main(process.argv.slice(2)));

async function main(asked: string[]): Promise<number> {
  if (asked.includes("--list")) {
    console.log(`npm run bench [-- <name> …]\n\n${list()}`);
    return 0;
  }
  const names = asked.length === 0 ? BENCHES.map(({ name }) => name) : asked;
  const unknown = names.filter((name) => !BENCHES.some((bench) => bench.name === name));
  if (unknown.length > 0) {
    console.error(`There is no bench ${unknown.join(", ")}. There are:\n\n${list()}`);
    return 2;
  }
  await sweepOrphans();
  console.log(`${machine()}\n${await versions()}`);
  for (const bench of BENCHES.filter(({ name }) => names.includes(name))) {
    console.log(`\n${bench.name}: ${bench.summary}; load before ${load()}\n`);
    await bench.run({ print: (line) => console.log(line) });
  }
  return 0;
}

function machine(): string {
  const cores = cpus();
  const memoryGb = Math.round(totalmem() / 2 ** 30);
  return `${cores.length} × ${cores[0]?.model.trim()}, ${memoryGb} GB; commit ${commit()}`;
}

function load(): string {
  return loadavg()[0]!.toFixed(1);
}

/** With a mark when there is more than the commit. */
function commit(): string {
  try {
    return execFileSync("git", ["describe", "--always", "--dirty"], { encoding: "utf8" }).trim();
  } catch {
    return "unknown";
  }
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

function list(): string {
  const width = Math.max(...BENCHES.map(({ name }) => name.length));
  return BENCHES.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
}
