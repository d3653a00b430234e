import { join } from "node:path";
import { createNullExecutor, readAgentConfig, startAgent } from "@tenure/agent";

// Node-units in one process: everything of the agent but processes of its own. Arguments: the server's URL, how many,
// a directory for their keys. Says their addresses when all have seen the fleet, then answers what it is asked.

const [url = "", count = "0", directory = ""] = process.argv.slice(2);

const agents = await Promise.all(
  Array.from({ length: Number(count) }, (_, index) => {
    const config = readAgentConfig({
      env: {
        HOST_URL: url,
        NODE_UNIT_NAME: `unit-${index}`,
        NODE_UNIT_DATA_DIR: join(directory, String(index)),
        ENABLE_CUSTOM_COMMAND: "true",
      },
    });
    return startAgent(config, {
      executor: createNullExecutor,
      sampler: { sample: () => ({ cpu_percent: 0, memory_percent: 0, memory_mb: 0 }) },
      log() {},
    });
  }),
);
await untilAllSeen();
process.send?.(agents.map(({ address }) => address));
process.on("message", () => {
  const { user, system } = process.cpuUsage();
  process.send?.((user + system) / 1_000);
});
process.on("disconnect", () => process.exit(0));

async function untilAllSeen(): Promise<void> {
  const sees = ({ connection }: (typeof agents)[number]) =>
    connection.members?.view === "ready" && connection.members.members.size >= agents.length;
  while (!agents.every(sees)) await new Promise((resolve) => setTimeout(resolve, 20));
}
