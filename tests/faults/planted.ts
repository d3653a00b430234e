import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { breakBuild } from "./build.ts";
import { buildAt, RELEASE } from "./commit-build.ts";
import { settingsOf } from "./dimension.ts";
import { DIMENSIONS } from "./dimensions.ts";
import type { Plant } from "./plants.ts";
import { runFaults } from "./suite.ts";

/** A broken protection that was not noticed in so long is not going to be. */
const CAUGHT_WITHIN_MS = 900_000;

/** What the suite found with one protection taken out; undefined when it found nothing. */
export async function runPlanted(
  plant: Plant,
  { directory }: { directory: string },
): Promise<string | undefined> {
  mkdirSync(directory, { recursive: true });
  const { dimension = "main" } = plant;
  const settings = settingsOf(DIMENSIONS.find(({ name }) => name === dimension)!);
  const workloads = settings.workloads.filter(({ name }) => plant.workloads.includes(name));
  const builds = [breakBuild(plant.edits), ...(plant.isMixed ? [buildAt(RELEASE)] : [])];
  const deadlineMs = performance.now() + CAUGHT_WITHIN_MS;
  // A bug of chance may need another chance: other seeds bring other moments, and a busy machine fewer of them.
  for (let attempt = 0; performance.now() < deadlineMs; attempt++) {
    const { violations, stuck } = await runFaults({
      ...settings,
      seed: plant.seed + attempt * 2,
      lengthMs: plant.seconds * 1_000,
      workloads,
      hot: "redis",
      builds,
      instances: plant.instances,
      faults: plant.faults,
      pace: plant.pace ?? { gapMs: [300, 1_200] },
      settleMs: plant.settleMs ?? 60_000,
      directory: `${directory}/${attempt}`,
      print: (line) => appendFileSync(join(directory, "log"), `${line}\n`),
    });
    const found = violations.find((each) => !stuck.includes(each));
    if (found !== undefined) return found;
  }
  return undefined;
}
