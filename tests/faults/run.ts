import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { repositoryRoot } from "../support/repository.ts";
import { ownBuild } from "./build.ts";
import { runPlanted } from "./planted.ts";
import { PLANTS } from "./plants.ts";
import { runFaults, type Verdict } from "./suite.ts";
import type { Workload } from "./workload.ts";
import { WORKLOADS } from "./workloads.ts";
import type { HotKind } from "./world.ts";

const USAGE = `npm run faults -- [options]

  --seed N        the same faults for the same seed (default: by chance, and printed)
  --minutes M     of load and faults (default 3); healing, settling and checking come on top
  --stages N      go on with the next seed, up to N times in all, while a hazard has not been met (default 1)
  --only a,b      workloads: ${WORKLOADS.map(({ name }) => name).join(", ")}
  --faults a,b    only these faults: freeze, instance.kill, postgres.*, instance.freeze:9000
  --hot KIND      redis or redis-cluster (default: by the seed)
  --instances N   default 3
  --planted       with one protection taken out at a time: ${PLANTS.length} bugs, each must be caught
  --plants a,b    only these of them
  --build DIR     another checkout, built, instead of this one
  --keep DIR      where the histories and the verdict are kept`;

const options = read(process.argv.slice(2));
const held = options.planted ? await planted() : await sound();
// By name: a proxy's half-closed connection must not keep a finished run waiting.
process.exit(held ? 0 : 1);

async function sound(): Promise<boolean> {
  const { seed, minutes, workloads, hot, instances, faults, directory, stagesMax } = options;
  console.log(
    `seed ${seed}, ${minutes} minutes on Postgres and ${hot}, ${instances} instances, commit ${commit()}: ${workloads.map(({ name }) => name).join(", ")}`,
  );
  const verdict = await runFaults({
    ...{ seed, hot, instances, workloads, directory, faults, stagesMax },
    lengthMs: minutes * 60_000,
    settleMs: 120_000,
    build: options.build,
    print: (line) => console.log(line),
  });
  writeFileSync(join(directory, "verdict.json"), JSON.stringify(verdict, null, 2));
  report(verdict);
  return verdict.violations.length === 0 && verdict.unreached.length === 0;
}

async function planted(): Promise<boolean> {
  const chosen = PLANTS.filter(
    ({ name }) => options.plants.length === 0 || options.plants.includes(name),
  );
  let caught = 0;
  for (const plant of chosen) {
    const startedMs = performance.now();
    const found = await runPlanted(plant, { directory: join(options.directory, plant.name) });
    const seconds = ((performance.now() - startedMs) / 1_000).toFixed(0);
    if (found !== undefined) caught += 1;
    console.log(
      `${found ? "caught" : "MISSED"}  ${plant.name} (${seconds} s): ${found ?? plant.what}`,
    );
  }
  console.log(`planted bugs caught: ${caught} of ${chosen.length}`);
  return caught === chosen.length;
}

function report(verdict: Verdict): void {
  for (const [name, { checked, reached }] of Object.entries(verdict.byWorkload)) {
    const hazards = Object.entries(reached).map(([hazard, count]) => `${hazard} ${count}`);
    console.log(`${name}: ${checked} operations checked; ${hazards.join(", ")}`);
  }
  const kinds = Object.entries(verdict.faultsByKind).map(([kind, count]) => `${kind} ${count}`);
  console.log(`faults: ${verdict.faults} (${kinds.join(", ")})`);
  console.log(`histories and verdict: ${options.directory}`);
  for (const violation of verdict.violations) console.log(`VIOLATION  ${violation}`);
  for (const hazard of verdict.unreached) console.log(`NOT REACHED  ${hazard}`);
  console.log(
    `${verdict.operations} operations, ${verdict.faults} faults, ${verdict.violations.length} violations, ${verdict.unreached.length} hazards not reached`,
  );
}

function read(argv: string[]) {
  const { values } = parseArgs({
    args: argv,
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
      minutes: { type: "string", default: "3" },
      stages: { type: "string", default: "1" },
      only: { type: "string", default: "" },
      faults: { type: "string", default: "" },
      hot: { type: "string", default: "" },
      instances: { type: "string", default: "3" },
      planted: { type: "boolean", default: false },
      plants: { type: "string", default: "" },
      build: { type: "string", default: ownBuild.root },
      keep: { type: "string", default: "" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    process.exit(0);
  }
  const seed = wholeNumber("seed", values.seed);
  const hot = values.hot || (seed % 2 === 0 ? "redis" : "redis-cluster");
  if (hot !== "redis" && hot !== "redis-cluster") refuse("--hot is redis or redis-cluster");
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) refuse("--minutes is a number above 0");
  const directory = values.keep || join(tmpdir(), `tenure-faults-${seed}-${process.pid}`);
  mkdirSync(directory, { recursive: true });
  return {
    seed,
    minutes,
    directory,
    hot: hot as HotKind,
    stagesMax: wholeNumber("stages", values.stages),
    instances: wholeNumber("instances", values.instances),
    workloads: chosenWorkloads(list(values.only)),
    faults: list(values.faults),
    build: { root: values.build },
    planted: values.planted || values.plants !== "",
    plants: list(values.plants),
  };
}

function chosenWorkloads(names: readonly string[]): Workload[] {
  const unknown = names.filter((name) => !WORKLOADS.some((workload) => workload.name === name));
  if (unknown.length > 0) refuse(`there is no workload ${unknown.join(", ")}`);
  return WORKLOADS.filter(({ name }) => names.length === 0 || names.includes(name));
}

function list(text: string): string[] {
  return text.split(",").filter((name) => name !== "");
}

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number)) refuse(`--${name} is a whole number`);
  return number;
}

function refuse(reason: string): never {
  console.error(`${reason}\n\n${USAGE}`);
  process.exit(2);
}

function commit(): string {
  try {
    const args = ["rev-parse", "--short", "HEAD"];
    return execFileSync("git", args, { cwd: repositoryRoot, encoding: "utf8" }).trim();
  } catch {
    return "unknown";
  }
}
