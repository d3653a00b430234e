import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { chosen, readCommandLine } from "../support/command-line.ts";
import { commitNow } from "../support/repository.ts";
import { ownBuild } from "./build.ts";
import { runPlanted } from "./planted.ts";
import { PLANTS } from "./plants.ts";
import type { HotKind } from "./stores.ts";
import { runFaults, type Verdict } from "./suite.ts";
import { WORKLOADS } from "./workloads.ts";

const USAGE = `npm run faults -- [options]

  --seed N        the same faults for the same seed (default: by chance, and printed)
  --minutes M     of load and faults (default 3); healing, settling and checking come on top
  --round M       minutes after which the hazards are looked at; what brings about a missing one comes oftener then
                  (default 2, and the next seed with every round)
  --more M        go on for up to M more minutes while a hazard has not been met (default 0)
  --only a,b      workloads: ${WORKLOADS.map(({ name }) => name).join(", ")}
  --faults a,b    only these faults: freeze, instance.kill, postgres.*, instance.freeze:9000
  --hot KIND      redis or redis-cluster (default: by the seed)
  --instances N   default 3
  --planted       with one protection taken out at a time: ${PLANTS.length} bugs, each must be caught
  --plants a,b    only these of them
  --build DIR     another checkout, built, instead of this one
  --keep DIR      where the histories and the verdict are kept`;

/** Generous: a machine with other work on it is slow, and what is broken is broken after five minutes too. */
const SETTLE_MS = 300_000;

// Before anything runs: somebody may commit meanwhile, but what runs is what was built.
const commit = commitNow();
const options = read();
const held = options.planted ? await planted() : await sound();
// By name: a proxy's half-closed connection must not keep a finished run waiting.
process.exit(held ? 0 : 1);

async function sound(): Promise<boolean> {
  const { seed, minutes, workloads, hot, instances, faults, directory } = options;
  console.log(
    `seed ${seed}, ${minutes} minutes on Postgres and ${hot}, ${instances} instances, commit ${commit}: ${workloads.map(({ name }) => name).join(", ")}`,
  );
  const verdict = await runFaults({
    ...{ seed, hot, instances, workloads, directory, faults },
    lengthMs: minutes * 60_000,
    roundMs: options.roundMinutes * 60_000,
    moreMs: options.moreMinutes * 60_000,
    settleMs: SETTLE_MS,
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
  console.log(`commit ${commit}, planted bugs caught: ${caught} of ${chosen.length}`);
  return caught === chosen.length;
}

/** Everything that docs/reliability.md tells of a run. */
function report(verdict: Verdict): void {
  const { byWorkload, faultsByKind, violations, unreached, loadAverages } = verdict;
  for (const [name, { checked, reached, violations: own }] of Object.entries(byWorkload))
    console.log(
      `${name}: ${checked} operations checked, ${own.length} violations; ${listed(reached)}`,
    );
  const kinds = Object.entries(faultsByKind).filter(([, count]) => count > 0);
  console.log(
    `faults: ${verdict.faults} of ${kinds.length} kinds (${listed(Object.fromEntries(kinds))})`,
  );
  const never = Object.keys(faultsByKind).filter((kind) => faultsByKind[kind] === 0);
  if (never.length > 0) console.log(`faults never done: ${never.join(", ")}`);
  console.log(`settled in ${(verdict.settledMs / 1_000).toFixed(0)} s after the last fault`);
  const loads = loadAverages.map((load) => load.toFixed(1)).join(" and ");
  console.log(
    `machine: ${availableParallelism()} cores, load average ${loads} at the beginning and the end of the faults, Node ${process.version}`,
  );
  console.log(`histories and verdict: ${options.directory}`);
  for (const violation of violations) console.log(`VIOLATION  ${violation}`);
  for (const hazard of unreached) console.log(`NOT REACHED  ${hazard}`);
  console.log(
    `seed ${options.seed}, commit ${commit}, ${options.hot}: ${verdict.operations} operations, ${verdict.faults} faults, ${violations.length} violations, ${unreached.length} hazards not reached`,
  );
}

function listed(counts: Record<string, number>): string {
  return Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(", ");
}

function read() {
  const { values, refuse, numberOf } = readCommandLine(USAGE, {
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
      minutes: { type: "string", default: "3" },
      round: { type: "string", default: "2" },
      more: { type: "string", default: "0" },
      only: { type: "string", default: "" },
      faults: { type: "string", default: "" },
      hot: { type: "string", default: "" },
      instances: { type: "string", default: "3" },
      planted: { type: "boolean", default: false },
      plants: { type: "string", default: "" },
      build: { type: "string", default: ownBuild.root },
      keep: { type: "string", default: "" },
    },
  });
  const seed = numberOf("seed", values.seed, { least: 0 });
  const hot = values.hot || (seed % 2 === 0 ? "redis" : "redis-cluster");
  if (hot !== "redis" && hot !== "redis-cluster") refuse("--hot is redis or redis-cluster");
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) refuse("--minutes is a number above 0");
  const [roundMinutes, moreMinutes] = [Number(values.round), Number(values.more)];
  if (!(roundMinutes > 0 && moreMinutes >= 0)) refuse("--round and --more are minutes");
  const directory = values.keep || join(tmpdir(), `tenure-faults-${seed}-${process.pid}`);
  mkdirSync(directory, { recursive: true });
  // The checkers would take the histories of another run for ours.
  if (readdirSync(directory).length > 0) refuse(`--keep ${directory} is not empty`);
  return {
    seed,
    minutes,
    directory,
    hot: hot as HotKind,
    roundMinutes,
    moreMinutes,
    instances: numberOf("instances", values.instances, { least: 1 }),
    workloads: chosen(WORKLOADS, list(values.only), refuse),
    faults: list(values.faults),
    build: { root: values.build },
    planted: values.planted || values.plants !== "",
    plants: list(values.plants),
  };
}

function list(text: string): string[] {
  return text.split(",").filter((name) => name !== "");
}
