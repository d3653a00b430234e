import { cpus, totalmem } from "node:os";
import { BENCHES } from "./benches.ts";
import { sweepOrphans } from "./support.ts";

// Not only the exit code: what a failed run has left open must not keep it alive. Its processes end with it.
process.exit(await main(process.argv.slice(2)));

async function main(names: string[]): Promise<number> {
  if (names.length === 0) {
    console.log(`npm run bench -- <name>\n\n${list()}`);
    return 0;
  }
  const unknown = names.filter((name) => !BENCHES.some((bench) => bench.name === name));
  if (unknown.length > 0) {
    console.error(`There is no bench ${unknown.join(", ")}. There are:\n\n${list()}`);
    return 2;
  }
  await sweepOrphans();
  for (const bench of BENCHES.filter(({ name }) => names.includes(name))) {
    console.log(`\n${bench.name}: ${bench.summary}\n${machine()}\n`);
    await bench.run({ print: (line) => console.log(line) });
  }
  return 0;
}

function machine(): string {
  const cores = cpus();
  const memoryGb = Math.round(totalmem() / 2 ** 30);
  return `${cores.length} × ${cores[0]?.model.trim()}, ${memoryGb} GB, Node ${process.version}`;
}

function list(): string {
  const width = Math.max(...BENCHES.map(({ name }) => name.length));
  return BENCHES.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
}
