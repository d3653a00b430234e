import { join } from "node:path";
import {
  type Agent,
  type AgentOptions,
  createNullExecutor,
  loadIdentity,
  readAgentConfig,
  startAgent,
} from "@tenure/agent";

export interface NullUnits {
  url: string;
  /** The number of the first one: names and keys follow from it. */
  first?: number;
  count: number;
  /** For their keys. */
  directory: string;
  onReady?: () => void;
  /** What one of them reads with. */
  tuning?: () => NonNullable<AgentOptions["tuning"]>;
}

/** Starts node-units in this process: everything of the agent but processes of its own. */
export async function startNullUnits(units: NullUnits): Promise<Agent[]> {
  const start = await prepareNullUnits(units);
  return start();
}

/** Their keys exist when this resolves, and what it returns starts them. */
export async function prepareNullUnits({
  url,
  first = 0,
  count,
  directory,
  onReady = () => {},
  tuning = () => ({}),
}: NullUnits): Promise<() => Promise<Agent[]>> {
  const configs = Array.from({ length: count }, (_, index) => {
    const name = String(first + index);
    return readAgentConfig({
      env: {
        HOST_URL: url,
        NODE_UNIT_NAME: `unit-${name}`,
        NODE_UNIT_DATA_DIR: join(directory, name),
        ENABLE_CUSTOM_COMMAND: "true",
      },
    });
  });
  const identities = await Promise.all(configs.map(loadIdentity));
  return () =>
    Promise.all(
      configs.map((config, index) =>
        startAgent(config, {
          identity: identities[index]!,
          executor: createNullExecutor,
          sampler: { sample: () => ({ cpu_percent: 0, memory_percent: 0, memory_mb: 0 }) },
          log() {},
          onReady,
          tuning: tuning(),
        }),
      ),
    );
}

/** Resolves when each of them sees a complete fleet of this size. */
export async function untilAllSee(agents: readonly Agent[], fleet: number): Promise<void> {
  const sees = ({ connection }: Agent) =>
    connection.members?.view === "ready" && connection.members.members.size >= fleet;
  while (!agents.every(sees)) await new Promise((resolve) => setTimeout(resolve, 20));
}
