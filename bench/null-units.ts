import { join } from "node:path";
import { type Agent, createNullExecutor, readAgentConfig, startAgent } from "@tenure/agent";

export interface NullUnits {
  url: string;
  /** The number of the first one: names and keys follow from it. */
  first?: number;
  count: number;
  /** For their keys. */
  directory: string;
  onReady?: () => void;
}

/** Starts node-units in this process: everything of the agent but processes of its own. */
export function startNullUnits({
  url,
  first = 0,
  count,
  directory,
  onReady = () => {},
}: NullUnits): Promise<Agent[]> {
  return Promise.all(
    Array.from({ length: count }, (_, index) => {
      const name = String(first + index);
      const config = readAgentConfig({
        env: {
          HOST_URL: url,
          NODE_UNIT_NAME: `unit-${name}`,
          NODE_UNIT_DATA_DIR: join(directory, name),
          ENABLE_CUSTOM_COMMAND: "true",
        },
      });
      return startAgent(config, {
        executor: createNullExecutor,
        sampler: { sample: () => ({ cpu_percent: 0, memory_percent: 0, memory_mb: 0 }) },
        log() {},
        onReady,
      });
    }),
  );
}

/** Resolves when each of them sees a complete fleet of this size. */
export async function untilAllSee(agents: readonly Agent[], fleet: number): Promise<void> {
  const sees = ({ connection }: Agent) =>
    connection.members?.view === "ready" && connection.members.members.size >= fleet;
  while (!agents.every(sees)) await new Promise((resolve) => setTimeout(resolve, 20));
}
