import { join } from "node:path";
import { type RunningProcess, startProcess } from "../processes/process.ts";
import { repositoryRoot } from "../repository.ts";

/** A whole vitest run in a process of its own, on one of the files in planted/. */
export function startPlantedRun(
  file: string,
  options: { args?: string[]; stores?: boolean } = {},
): RunningProcess {
  const config = join(repositoryRoot, "packages/testing/src/vitest/planted/vitest.config.ts");
  return startProcess({
    command: process.execPath,
    args: [
      join(repositoryRoot, "node_modules/vitest/vitest.mjs"),
      ...["run", "--config", config, `${file}.planted.ts`],
      ...(options.args ?? []),
    ],
    env: { TENURE_PLANTED_STORES: options.stores ? "yes" : "no" },
  });
}
