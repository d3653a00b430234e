import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chosen, readCommandLine, renderChoices } from "@tenure/testing/command-line";
import { commitNow } from "@tenure/testing/repository";
import { type Build, ownBuild } from "./build.ts";
import { buildAt, CommitMissing } from "./commit-build.ts";
import { type Dimension, settingsOf } from "./dimension.ts";
import { DIMENSIONS, main } from "./dimensions.ts";
import { runPlanted } from "./planted.ts";
import { PLANTS } from "./plants.ts";
import { report, summaryOf } from "./report.ts";
import type { HotKind } from "./stores.ts";
import { runFaults, type Verdict } from "./suite.ts";
import { versionsOf } from "./workloads/versions.ts";
import { WORKLOADS } from "./workloads.ts";

const USAGE = `npm run faults -- [options]

  --seed N        the same faults for the same seed (default: by chance, and printed)
  --minutes M     of load and faults in the dimension main (default 3), and a fifth of it in each other dimension, but
                  never less than the seconds it needs; healing, settling and checking come on top
  --dimensions a,b
                  only these, one after the other, each in a world of its own (default: all; only main if --only or
                  --faults is given):
${renderChoices(DIMENSIONS).replaceAll(/^/gm, "                  ")}
  --round M       minutes after which the hazards are looked at; what brings about a missing one comes oftener then
                  (default 2, and the next seed with every round)
  --more M        go on for up to M more minutes while a hazard has not been met (default 0)
  --need a,b      workloads whose hazards must be met (default: all); versions is the one that counts what was mixed
  --only a,b      workloads of main: ${WORKLOADS.map(({ name }) => name).join(", ")}
  --faults a,b    only these faults of main: freeze, instance.kill, postgres.*, instance.freeze:9000
  --hot KIND      redis or redis-cluster (default: by the seed)
  --instances N   default 3
  --planted       with one protection taken out at a time: ${PLANTS.length} bugs, each must be caught
  --plants a,b    only these of them
  --mixed COMMIT  beside this checkout also instances, node-units, workers and clients as they were at this commit of
                  our own history; each may come back in the other version, and swap is a fault: stopped in one version,
                  started in the other
  --build DIR     another checkout, built, instead of this one
  --keep DIR      where the histories and the verdict are kept`;

/** Generous: a machine with other work on it is slow, and what is broken is broken after five minutes too. */
const SETTLE_MS = 300_000;

/** Of the length of main. */
const SHARE_OF_A_DIMENSION = 1 / 5;

// Before anything runs: somebody may commit meanwhile, but what runs is what was built.
const commit = commitNow();
const options = read();
const held = options.planted ? await planted() : await sound();
// By name: a proxy's half-closed connection must not keep a finished run waiting.
process.exit(held ? 0 : 1);

async function sound(): Promise<boolean> {
  const verdicts: Verdict[] = [];
  for (const dimension of options.dimensions) verdicts.push(await runDimension(dimension));
  const names = options.dimensions.map(({ name }) => name).join(", ");
  console.log(`seed ${options.seed}, commit ${commit}, ${names}: ${summaryOf(verdicts)}`);
  return verdicts.every(
    ({ violations, unreached }) => violations.length === 0 && unreached.length === 0,
  );
}

async function runDimension(dimension: Dimension): Promise<Verdict> {
  const { seed, minutes } = options;
  const { hot = options.hot, instances = options.instances } = dimension;
  const isMain = dimension.name === main.name;
  const lengthMs = isMain
    ? minutes * 60_000
    : Math.max(dimension.seconds * 1_000, minutes * 60_000 * SHARE_OF_A_DIMENSION);
  const directory = join(options.directory, dimension.name);
  const own = isMain ? { workloads: options.workloads, faults: options.faults } : {};
  const settings = { ...settingsOf(dimension), ...own };
  const isMixed = options.builds.length > 1;
  const workloads = isMixed
    ? [...settings.workloads, versionsOf(settings.workloads)]
    : settings.workloads;
  const names = workloads.map(({ name }) => name).join(", ");
  console.log(
    `${dimension.name}: seed ${seed}, ${Math.round(lengthMs / 1_000)} s on Postgres and ${hot}, ${instances} instances, commit ${[commit, ...options.builds.slice(1).map(({ name }) => name)].join(" beside ")}: ${names}`,
  );
  const verdict = await runFaults({
    ...settings,
    ...{ workloads, need: options.need, seed, hot, instances, directory, lengthMs },
    roundMs: Math.min(lengthMs, options.roundMinutes * 60_000),
    moreMs: options.moreMinutes * 60_000,
    settleMs: SETTLE_MS,
    builds: options.builds,
    print: (line) => console.log(line),
  });
  writeFileSync(join(directory, "verdict.json"), JSON.stringify(verdict, null, 2));
  report(verdict, { directory });
  console.log(`${dimension.name}: ${summaryOf([verdict])}`);
  return verdict;
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

function read() {
  const { values, refuse, numberOf } = readCommandLine(USAGE, {
    options: {
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 31)) },
      minutes: { type: "string", default: "3" },
      dimensions: { type: "string", default: "" },
      round: { type: "string", default: "2" },
      more: { type: "string", default: "0" },
      need: { type: "string", default: "" },
      only: { type: "string", default: "" },
      faults: { type: "string", default: "" },
      hot: { type: "string", default: "" },
      instances: { type: "string", default: "3" },
      planted: { type: "boolean", default: false },
      plants: { type: "string", default: "" },
      mixed: { type: "string", default: "" },
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
  const isMainNarrowed = values.only !== "" || values.faults !== "";
  const dimensions = values.dimensions || (isMainNarrowed ? main.name : "");
  return {
    seed,
    minutes,
    directory,
    hot: hot as HotKind,
    roundMinutes,
    moreMinutes,
    instances: numberOf("instances", values.instances, { least: 1 }),
    dimensions: chosen(DIMENSIONS, list(dimensions), refuse),
    workloads: chosen(WORKLOADS, list(values.only), refuse),
    faults: list(values.faults),
    need: list(values.need),
    builds: [{ ...ownBuild, root: values.build }, ...older(values.mixed)],
    planted: values.planted || values.plants !== "",
    plants: list(values.plants),
  };
}

/** The build of a commit that runs beside this checkout, where one is asked for. */
function older(commit: string): Build[] {
  if (commit === "") return [];
  try {
    return [buildAt(commit)];
  } catch (error) {
    if (!(error instanceof CommitMissing)) throw error;
    console.error(error.message);
    process.exit(2);
  }
}

function list(text: string): string[] {
  return text.split(",").filter((name) => name !== "");
}
