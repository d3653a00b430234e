import { randomUUID } from "node:crypto";
import {
  type Agent,
  type AgentConfig,
  type AgentLog,
  createNullExecutor,
  type NodeIdentity,
  startAgent,
} from "@tenure/agent";
import { type RunningProcess, startTenure } from "../processes/process.ts";
import { scratchDirectory } from "../scratch.ts";
import { createTestNodeKey } from "./node-key.ts";

export interface RunningUnit extends RunningProcess {
  readonly name: string;
  readonly address: string;
  readonly dataDir: string;
}

export interface UnitOptions {
  name: string;
  urls: readonly string[];
  env?: Record<string, string>;
  /** One that an earlier process has used; else a new one. */
  dataDir?: string;
}

const CONNECTED_DEADLINE_MS = 60_000;

/** Short settings, so that a test on a busy machine waits for conditions and not for intervals. */
const QUICK: Record<string, string> = {
  NODE_UNIT_SCHEDULER_INTERVAL_MS: "3000",
  NODE_UNIT_STOP_GRACE_MS: "2000",
  ENABLE_CUSTOM_COMMAND: "true",
};

/** Runs `tenure node` as an operator would; it may not be connected yet. */
export function spawnUnit({ name, urls, env = {}, dataDir }: UnitOptions): RunningProcess & {
  dataDir: string;
} {
  const directory = dataDir ?? scratchDirectory("unit");
  const running = startTenure(["node", "run", "--name", name, "--url", urls.join(",")], {
    env: { ...QUICK, ...env },
    dataDir: directory,
  });
  return { ...running, dataDir: directory };
}

/** Until it says that it is connected. */
export async function startUnit(options: UnitOptions): Promise<RunningUnit> {
  const running = spawnUnit(options);
  const line = /^node-unit .* \((\w+)\) is connected/;
  const [, address = ""] = await running.waitForLine(line, CONNECTED_DEADLINE_MS);
  return { ...running, name: options.name, address };
}

export interface SimulatedUnitOptions {
  urls: readonly string[];
  name?: string;
  config?: Partial<AgentConfig>;
  log?: AgentLog;
  /** Processor and memory shares it says it uses; `undefined`: it cannot tell. */
  usage?: () => { cpu_percent: number; memory_percent: number } | undefined;
}

const IDLE = { cpu_percent: 1, memory_percent: 1 };

/** A node-unit over a real socket that claims and runs nothing, in this process. */
export function startSimulatedUnit(options: SimulatedUnitOptions): Promise<Agent> {
  const { urls, name = "simulated", config = {}, log = () => {}, usage = () => IDLE } = options;
  const settings: AgentConfig = {
    host_urls: urls,
    name,
    data_dir: "/nonexistent",
    labels: {},
    claim_policy: "deployment_count",
    scheduler_interval_ms: 5_000,
    cpu_weight: 1,
    memory_weight: 1,
    self_stop_ms: 30_000,
    stop_grace_ms: 10_000,
    start_concurrency_max: 4,
    packages_max_mb: 10_240,
    work_keep_days: 30,
    custom_command: true,
    ...config,
  };
  return startAgent(settings, {
    identity: createTestIdentity(),
    executor: createNullExecutor,
    sampler: {
      sample() {
        const used = usage();
        return used && { memory_mb: 1, ...used };
      },
    },
    log,
  });
}

function createTestIdentity(): NodeIdentity {
  const { address, signBytes } = createTestNodeKey();
  return { address, bootId: randomUUID(), sign: async (bytes) => signBytes(bytes) };
}
