import { askRedis } from "../stores/redis-ask.ts";

/** Calls by command since the counters were last reset, those that scripts made included. */
export async function readCommandCounts(port: number): Promise<Record<string, number>> {
  const stats = await askRedis(port, "INFO commandstats");
  const calls = [...stats.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)];
  const counted = calls.map(([, name = "", count]) => [name, Number(count)] as const);
  return Object.fromEntries(counted.filter(([name]) => !OWN.has(name)));
}

export async function resetCommandCounts(port: number): Promise<void> {
  await askRedis(port, "CONFIG RESETSTAT");
}

/** What counting itself asks for. */
const OWN = new Set(["info", "config|resetstat"]);
