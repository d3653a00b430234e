import { join } from "node:path";
import { freePort } from "../processes/free-port.ts";
import { startProcess } from "../processes/process.ts";
import { repositoryRoot } from "../repository.ts";

export interface Anvil {
  url: string;
  rpc<T>(method: string, ...params: unknown[]): Promise<T>;
  stop(): Promise<unknown>;
}

/**
 * A real EVM chain that mines when asked to. Its `finalized` block is two below the newest. The binary is an npm
 * package for Linux on x64, an optional dependency; elsewhere the start fails.
 */
export async function startAnvil(): Promise<Anvil> {
  const port = await freePort();
  const program = startProcess({
    command: join(repositoryRoot, "node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil"),
    args: ["--port", String(port), "--no-mining", "--slots-in-an-epoch", "1"],
  });
  await program.waitForLine(/Listening on/);
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    async rpc<T>(method: string, ...params: unknown[]): Promise<T> {
      const response = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
      });
      const { result, error } = (await response.json()) as {
        result?: T;
        error?: { message: string };
      };
      if (error) throw new Error(`${method}: ${error.message}`);
      return result as T;
    },
    stop: () => program.stop(),
  };
}
