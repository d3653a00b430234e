import { randomUUID } from "node:crypto";
import type { DeploymentReport, ListedDeployment } from "@tenure/protocol";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { onTestFinished } from "vitest";
import type {
  DesiredDeployment,
  Executor,
  ExecutorLog,
  ExecutorOptions,
} from "../src/executor/contract.ts";
import { createExecutor } from "../src/executor/executor.ts";

/** An executor in a directory of its own, with all its reports and log lines. */
export interface ExecutorFixture {
  executor: Executor;
  dataDir: string;
  reports: DeploymentReport[];
  logs: ExecutorLog[];
  /** The first report from now on, or the newest one, that has this state and fits. */
  reported(
    row: ListedDeployment,
    state: DeploymentReport["state"],
    fits?: (report: DeploymentReport) => boolean,
  ): Promise<DeploymentReport>;
  /** States of one deployment, in order, each change once. */
  statesOf(row: ListedDeployment): string[];
  /** The lines of its log, when there are at least so many. */
  logLines(row: ListedDeployment, atLeast?: number): Promise<string[]>;
}

/** Machines are slow when many tests run on them. */
export const PATIENT = { deadlineMs: 60_000 };

export async function startExecutor(
  options: Partial<ExecutorOptions> = {},
): Promise<ExecutorFixture> {
  const dataDir = options.dataDir ?? scratchDirectory("node");
  const reports: DeploymentReport[] = [];
  const logs: ExecutorLog[] = [];
  const executor = await createExecutor({
    dataDir,
    tenureUrl: "http://127.0.0.1:7070",
    stopGraceMs: 10_000,
    startConcurrencyMax: 4,
    report: (report) => void reports.push(report),
    log: (line) => void logs.push(line),
    tuning: { backoff: { baseMs: 20, capMs: 200, stableMs: 60_000 }, startedAfterMs: 50 },
    ...options,
  });
  onTestFinished(() => executor.stop());

  const of = (row: ListedDeployment): DeploymentReport[] =>
    reports.filter(({ deployment_id }) => deployment_id === row.id);

  return {
    executor,
    dataDir,
    reports,
    logs,
    async reported(row, state, fits = () => true) {
      const seen = Math.max(0, of(row).length - 1);
      return until(
        () =>
          of(row)
            .slice(seen)
            .find((report) => report.state === state && fits(report)),
        {
          ...PATIENT,
          what: `${row.name} to be ${state}; its last reports: ${JSON.stringify(of(row).slice(-3))}`,
        },
      );
    },
    statesOf: (row) =>
      of(row)
        .map(({ state }) => state)
        .filter((state, index, all) => state !== all[index - 1]),
    async logLines(row, atLeast = 1) {
      const read = () => executor.readLog({ deployment_id: row.id, lines: 1_000 });
      await until(async () => (await read()).lines.length >= atLeast, {
        ...PATIENT,
        what: `${atLeast} lines of ${row.name}`,
      });
      return (await read()).lines;
    },
  };
}

/** A row of the list, complete, as the server gives it for what is wanted here. */
export function aRow(fields: Partial<ListedDeployment> = {}): ListedDeployment {
  const id = fields.id ?? randomUUID();
  return {
    id,
    name: fields.command || fields.package_name || id,
    package_name: "",
    package_version: "",
    command: "",
    args: [],
    env: {},
    type: "deployment",
    address: "here",
    enabled: true,
    selector: {},
    lost_after_ms: 0,
    generation: 1,
    revision: 1,
    moving_to: "",
    move_state: "",
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
    ...fields,
  };
}

export const wanted = (
  row: ListedDeployment,
  mode: DesiredDeployment["mode"] = "run",
  refused: DesiredDeployment["refused"] = [],
): DesiredDeployment => ({ row, mode, refused });
