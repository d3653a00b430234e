import { startNullUnits, untilAllSee } from "./null-units.ts";

// Node-units in one process. Arguments: the server's URL, how many, a directory for their keys. Says their addresses when
// all have seen the fleet, then answers what it is asked.

const [url = "", count = "0", directory = ""] = process.argv.slice(2);

const agents = await startNullUnits({ url, count: Number(count), directory });
await untilAllSee(agents, agents.length);
process.send?.(agents.map(({ address }) => address));
process.on("message", () => {
  const { user, system } = process.cpuUsage();
  process.send?.((user + system) / 1_000);
});
process.on("disconnect", () => process.exit(0));
