import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { descendantsOf, identify, isAlive } from "@tenure/testing/processes/proc";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import type { DesiredDeployment } from "../src/executor/contract.ts";

/** An agent that is only an executor, in a process of its own that can be killed. Prints `ready`, then every report. */
export function startAgentProcess({
  dataDir,
  all,
  restartEveryMs = 0,
}: {
  dataDir: string;
  all: readonly DesiredDeployment[];
  /** Gives every deployment a new term that often, so that children start and stop all the time. */
  restartEveryMs?: number;
}): RunningProcess {
  const built = join(repositoryRoot, "packages/agent/dist/executor/executor.js");
  const program = `
    import { createExecutor } from ${JSON.stringify(built)};
    const all = ${JSON.stringify(all)};
    console.log("beginning");
    const executor = await createExecutor({
      dataDir: ${JSON.stringify(dataDir)},
      tenureUrl: "http://127.0.0.1:7070",
      stopGraceMs: 200,
      startConcurrencyMax: 4,
      report: ({ state, pid }) => console.log(state, pid ?? ""),
      log: ({ event }) => console.log(event),
      tuning: { startedAfterMs: 20 },
    }).catch((error) => {
      console.log("refused:", error.message);
      process.exit(1);
    });
    console.log("ready");
    executor.setDesired(all);
    let generation = 1;
    const next = () => {
      generation++;
      executor.setDesired(all.map((one) => ({ ...one, row: { ...one.row, generation } })));
    };
    if (${restartEveryMs} > 0) setInterval(next, ${restartEveryMs});
    process.on("SIGTERM", async () => {
      await executor.stop();
      process.exit(0);
    });
    setInterval(() => {}, 1000);`;
  return startProcess({ command: process.execPath, args: ["--input-type=module", "-e", program] });
}

/** Every process that is alive and was started by an agent of this data directory, found by its environment. */
export function childrenOf(dataDir: string): { pid: number; deploymentId: string }[] {
  return readAll(`TENURE_WORK_DIR=${dataDir}/work/`);
}

/** The guard of an agent: the shell among its children. */
export function guardOf(agentPid: number): number | undefined {
  return descendantsOf(agentPid).find((pid) => readCommand(pid).includes("tenure-guard"));
}

function readAll(mark: string): { pid: number; deploymentId: string }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const identity = identify(Number(name));
      const variable = read(`/proc/${name}/environ`)
        .split("\0")
        .find((one) => one.startsWith(mark));
      if (!identity || variable === undefined || !isAlive(identity)) return [];
      return [{ pid: identity.pid, deploymentId: variable.slice(mark.length) }];
    });
}

const readCommand = (pid: number): string => read(`/proc/${pid}/cmdline`);

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
