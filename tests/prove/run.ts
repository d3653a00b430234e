import { parseArgs } from "node:util";
import { sweepOrphans } from "../support/registry.ts";
import type { Proof, Size } from "./proof.ts";
import { PROOFS } from "./proofs.ts";

const USAGE = "npm run prove -- <name> [--seed N] [--size ci|full]";

// Not only the exit code: what a failed run has left open must not keep it alive. Its processes end with it.
process.exit(await main(process.argv.slice(2)));

async function main(argv: string[]): Promise<number> {
  const { names, size, seed } = read(argv);
  if (names.length === 0) {
    console.log(`${USAGE}\n\n${list()}`);
    return 0;
  }
  const unknown = names.filter((name) => !PROOFS.some((proof) => proof.name === name));
  if (unknown.length > 0) {
    console.error(`There is no proof ${unknown.join(", ")}. There are:\n\n${list()}`);
    return 2;
  }
  await sweepOrphans();
  let exitCode = 0;
  for (const proof of PROOFS.filter(({ name }) => names.includes(name))) {
    if (!(await holds(proof, size, seed))) exitCode = 1;
  }
  return exitCode;
}

async function holds(proof: Proof, size: Size, seed: number): Promise<boolean> {
  console.log(`\n${proof.name} (${size}, seed ${seed}): ${proof.summary}`);
  const startedMs = performance.now();
  const took = () => `${((performance.now() - startedMs) / 1_000).toFixed(1)} s`;
  try {
    await proof.run({ size, seed, print: (line) => console.log(`  ${line}`) });
    console.log(`  held (${took()})`);
    return true;
  } catch (error) {
    console.error(`  BROKEN after ${took()}: ${error instanceof Error ? error.stack : error}`);
    return false;
  }
}

function read(argv: string[]): { names: string[]; size: Size; seed: number } {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
      size: { type: "string", default: "full" },
    },
  });
  if (values.size !== "ci" && values.size !== "full") throw new Error("--size is ci or full");
  const seed = Number(values.seed);
  if (!Number.isSafeInteger(seed)) throw new Error("--seed is a whole number");
  return { names: positionals, size: values.size, seed };
}

function list(): string {
  const width = Math.max(...PROOFS.map(({ name }) => name.length));
  return PROOFS.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
}
