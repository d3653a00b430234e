import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProcessSpec } from "@tenure/testing/processes/process";
import type { Scene } from "./workload.ts";

/** `load`, `settle`, `check`, or the name of a program of the workload. */
export type Phase = string;

/** How a program of a workload is started: the phase, and a file that tells it everything else. */
export function programSpec(phase: Phase, scene: Scene): ProcessSpec {
  const file = `${scene.historyFile}.${phase}.${scene.start}.scene`;
  writeFileSync(file, JSON.stringify(scene));
  const program = join(scene.programsRoot, "tests/dist/faults/program.js");
  return { command: process.execPath, args: [program, phase, file] };
}
