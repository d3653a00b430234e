import { readdirSync, readFileSync } from "node:fs";

/** Processes of one deployment on this machine. */
export interface ChildProcesses {
  deploymentId: string;
  pids: number[];
}

/**
 * Every process that carries a deployment of an agent with this data directory in its environment, by deployment. Asked
 * of the kernel, not of the agent: what it does not know of is what matters here. A zombie has no environment.
 */
export function childrenOf(dataDir: string): ChildProcesses[] {
  const found = new Map<string, number[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const env = environmentOf(name);
    const [, deploymentId] = /(?:^|\0)TENURE_DEPLOYMENT_ID=([^\0]+)/.exec(env) ?? [];
    if (deploymentId === undefined || !env.includes(`TENURE_WORK_DIR=${dataDir}/`)) continue;
    found.set(deploymentId, [...(found.get(deploymentId) ?? []), Number(name)]);
  }
  return [...found].map(([deploymentId, pids]) => ({ deploymentId, pids }));
}

function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return ""; // gone meanwhile, or somebody else's
  }
}
