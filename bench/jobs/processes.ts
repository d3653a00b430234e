import { fileURLToPath } from "node:url";
import type { TlsFiles } from "@tenure/sdk";
import type { RunningServer } from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import type { Load, LoadFigures } from "./drive.ts";
import type { Role, System } from "./role.ts";

export const CAPACITY = 128;
const SESSIONS = 4;
/** A load of many jobs on a slow machine. */
const FIGURES_WITHIN_MS = 3_600_000;

/** Somebody who submits what it is told, with the worker that answers it. */
export interface Pair {
  worker: RunningProcess;
  submitter: RunningProcess;
  drive(load: Load): Promise<LoadFigures>;
}

/** Every process of a bench; `stop` ends them all. */
export interface Stage {
  keep<T extends RunningProcess>(running: T | Promise<T>): Promise<T>;
  startPair(submitter: Role, worker: Role): Promise<Pair>;
  startProgram(file: string, args: string[]): Promise<RunningProcess>;
  stop(): Promise<void>;
}

export function createStage(): Stage {
  const started: RunningProcess[] = [];

  async function keep<T extends RunningProcess>(running: T | Promise<T>): Promise<T> {
    const kept = await running;
    started.push(kept);
    return kept;
  }

  function startProgram(file: string, args: string[]): Promise<RunningProcess> {
    const program = fileURLToPath(new URL(file, import.meta.url));
    return keep(startProcess({ command: process.execPath, args: [program, ...args], hears: true }));
  }

  async function startRole(role: Role): Promise<RunningProcess> {
    const running = await startProgram("./role.js", [JSON.stringify(role)]);
    await running.waitForLine(/^ready$/, 60_000);
    return running;
  }

  return {
    keep,
    startProgram,
    async startPair(submitterRole, workerRole) {
      const worker = await startRole(workerRole);
      const submitter = await startRole(submitterRole);
      let asked = 0;
      return {
        worker,
        submitter,
        async drive(load) {
          asked += 1;
          submitter.tell(JSON.stringify(load));
          const line = new RegExp(`^figures ${asked} (.*)$`);
          const [, figures = ""] = await submitter.waitForLine(line, FIGURES_WITHIN_MS);
          return JSON.parse(figures) as LoadFigures;
        },
      };
    },
    async stop() {
      await Promise.all(started.map((each) => each.kill9()));
    },
  };
}

export const submitterOf = (system: System): Role => ({
  role: "load",
  sessions: SESSIONS,
  ...system,
});

export const workerOf = (system: System): Role => ({
  role: "worker",
  capacity: CAPACITY,
  ...system,
});

export const submitterOn = ({ url }: RunningServer, tls?: TlsFiles): Role =>
  submitterOf({ system: "tenure", url, tls });

export const workerOn = ({ url }: RunningServer, tls?: TlsFiles): Role =>
  workerOf({ system: "tenure", url, tls });
