import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createHistory } from "@tenure/testing/history";
import { DIMENSIONS } from "./dimensions.ts";
import { historyOf } from "./history-of.ts";
import type { LoadContext, Scene, Workload } from "./workload.ts";
import { versionsOf } from "./workloads/versions.ts";

// A program of a workload: it makes the load, or settles what is unknown, or checks. Each in a process of its own.
//
//   node program.js load|settle|check|<program of the workload> <file with the scene>

const FINISH_MS = 3_000;

const phases: Record<string, (workload: Workload, scene: Scene) => Promise<void>> = {
  async load(workload, scene) {
    await stay(scene, (context) => {
      // Not before it can hear that it should be quiet: whoever reads this may say so at once, and to a program
      // that does not listen the signal is its end.
      console.log("loading");
      return workload.load(context);
    });
    console.log("quiet");
  },
  async settle(workload, scene) {
    const history = createHistory(scene.historyFile);
    const events = historyOf(scene);
    await workload.settle({ scene, history, events, deadlineMs: scene.settleMs });
    console.log("settled");
    process.exit(0);
  },
  async check(workload, scene) {
    const stores = await workload.read(scene);
    const findings = workload.check(historyOf(scene), stores as never, scene);
    console.log(`findings ${JSON.stringify(findings)}`);
    process.exit(0);
  },
};

/** Connections stay as they are until somebody ends the process. */
async function stay(scene: Scene, program: (context: LoadContext) => Promise<void>): Promise<void> {
  const quiet = new AbortController();
  const closing: (() => Promise<void>)[] = [];
  process.once("SIGUSR2", () => quiet.abort());
  setInterval(() => {}, 60_000);
  let running = Promise.resolve();
  process.once("SIGTERM", async () => {
    quiet.abort();
    // Nothing new is begun; what was begun gets a moment, as a program with a stop time-out would give it.
    if (closing.length === 0) await Promise.race([running, wait(FINISH_MS)]);
    await Promise.all(closing.map((close) => close()));
    process.exit(0);
  });
  running = program({
    scene,
    history: createHistory(scene.historyFile),
    quiet: quiet.signal,
    atStop: (close) => void closing.push(close),
  });
  await running;
}

const [, , phase = "", sceneFile = ""] = process.argv;
if (!existsSync(sceneFile)) {
  console.error(`usage: ${basename(import.meta.filename)} <phase> <scene>`);
  process.exit(2);
}
const scene = JSON.parse(readFileSync(sceneFile, "utf8")) as Scene;
const workload = [...DIMENSIONS.flatMap(({ workloads }) => workloads), versionsOf([])].find(
  ({ name }) => name === scene.workload,
);
if (!workload) throw new Error(`there is no workload ${scene.workload}`);
const program = workload.programs?.[phase];
const run = phases[phase] ?? (program && (() => stay(scene, program)));
if (!run) throw new Error(`${workload.name} has no program ${phase}`);
await run(workload, scene);
