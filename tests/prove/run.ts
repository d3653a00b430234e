import { chosen, readCommandLine, renderChoices } from "@tenure/testing/command-line";
import { sweepOrphans } from "@tenure/testing/processes/process-registry";
import type { Proof, ProofRun } from "./proof.ts";
import { PROOFS } from "./proofs.ts";

const USAGE = `npm run prove -- <name> … [--seed N] [--size ci|full] [--count N]

${renderChoices(PROOFS)}`;

// Not only the exit code: what a failed run has left open must not keep it alive. Its processes end with it.
process.exit(await main());

async function main(): Promise<number> {
  const { proofs, ...how } = read();
  if (proofs.length === 0) {
    console.log(USAGE);
    return 0;
  }
  await sweepOrphans();
  let exitCode = 0;
  for (const proof of proofs) if (!(await holds(proof, how))) exitCode = 1;
  return exitCode;
}

async function holds(proof: Proof, { size, seed, count }: How): Promise<boolean> {
  console.log(`\n${proof.name} (${size}, seed ${seed}): ${proof.summary}`);
  const startedMs = performance.now();
  const took = () => `${((performance.now() - startedMs) / 1_000).toFixed(1)} s`;
  try {
    await proof.run({ size, seed, count, print: (line) => console.log(`  ${line}`) });
    console.log(`  held (${took()})`);
    return true;
  } catch (error) {
    console.error(`  BROKEN after ${took()}: ${error instanceof Error ? error.stack : error}`);
    return false;
  }
}

type How = Omit<ProofRun, "print">;

function read(): { proofs: Proof[] } & How {
  const { values, positionals, refuse, numberOf } = readCommandLine(USAGE, {
    allowPositionals: true,
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
      size: { type: "string", default: "full" },
      count: { type: "string" },
    },
  });
  const { size } = values;
  if (size !== "ci" && size !== "full") return refuse("--size is ci or full");
  return {
    proofs: positionals.length === 0 ? [] : chosen(PROOFS, positionals, refuse),
    size,
    seed: numberOf("seed", values.seed, { least: 0 }),
    count: values.count === undefined ? undefined : numberOf("count", values.count, { least: 1 }),
  };
}
