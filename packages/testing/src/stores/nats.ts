import { join } from "node:path";
import { type RunningProcess, startProcess } from "../processes/process.ts";
import { findNats } from "../programs/programs.ts";
import { scratchDirectory } from "../scratch.ts";

export interface NatsServer extends RunningProcess {
  readonly port: number;
  readonly version: string;
}

/** A private NATS server with JetStream on a free loopback port, with its data in a temporary directory. */
export async function startNats(): Promise<NatsServer> {
  const { directory, env, version } = await findNats();
  const running = startProcess({
    command: join(directory, "nats-server"),
    args: ["--addr", "127.0.0.1", "--port", "-1", "--jetstream", "-sd", scratchDirectory("nats")],
    env,
  });
  const [, port] = await running.waitForLine(/client connections on 127\.0\.0\.1:(\d+)/);
  await running.waitForLine(/Server is ready/);
  return { ...running, port: Number(port), version };
}
