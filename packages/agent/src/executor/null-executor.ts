import { TenureError } from "@tenure/protocol";
import type { Executor } from "./contract.ts";

/** An executor that runs nothing, for node-units that only claim, as in a benchmark. */
export async function createNullExecutor(): Promise<Executor> {
  const unknown = (id: string) => new TenureError("NOT_FOUND", { what: "deployment", id });
  return {
    setDesired() {},
    suspend() {},
    resume() {},
    reportAll() {},
    restart: async (deploymentId) => {
      throw unknown(deploymentId);
    },
    readLog: async ({ deployment_id }) => {
      throw unknown(deployment_id);
    },
    followLog: async ({ deployment_id }) => {
      throw unknown(deployment_id);
    },
    running: () => [],
    stop: async () => {},
  };
}
