import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { createHistory } from "../support/history.ts";
import { historyOf } from "./history-of.ts";
import type { Phase } from "./program-spec.ts";
import type { Scene, Workload } from "./workload.ts";
import { WORKLOADS } from "./workloads.ts";

// A program of a workload: it makes the load, or settles what is unknown, or checks. Each in a process of its own.
//
//   node program.js load|settle|check <file with the scene>

const phases: Record<Phase, (workload: Workload, scene: Scene) => Promise<void>> = {
  async load(workload, scene) {
    const quiet = new AbortController();
    process.once("SIGUSR2", () => quiet.abort());
    console.log("loading");
    // Connections stay as they are until somebody ends the process.
    const stay = setInterval(() => {}, 60_000);
    const history = createHistory(scene.historyFile);
    try {
      await workload.load({ scene, history, quiet: quiet.signal });
      console.log("quiet");
    } catch (error) {
      clearInterval(stay);
      throw error;
    }
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

const [, , phase = "", sceneFile = ""] = process.argv;
const run = phases[phase as Phase];
if (!run || !existsSync(sceneFile)) {
  console.error(`usage: ${basename(import.meta.filename)} load|settle|check <scene>`);
  process.exit(2);
}
const scene = JSON.parse(readFileSync(sceneFile, "utf8")) as Scene;
const workload = WORKLOADS.find(({ name }) => name === scene.workload);
if (!workload) throw new Error(`there is no workload ${scene.workload}`);
await run(workload, scene);
