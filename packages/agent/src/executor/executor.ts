import type { Executor, ExecutorOptions } from "./contract.ts";

/**
 * Runs what is wanted on this machine. Resolves when whatever a former agent of this data directory left running has
 * ended. Throws when the directory cannot be used, or when another agent uses it now.
 */
export async function createExecutor(_options: ExecutorOptions): Promise<Executor> {
  throw new Error("the executor is not written yet");
}
