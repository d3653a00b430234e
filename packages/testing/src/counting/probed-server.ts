import { connect } from "node:net";
import { createInterface } from "node:readline";
import { type RunningServer, startServer } from "../fleet/running-server.ts";
import type { TenureOptions } from "../processes/process.ts";
import type { HeapCounts } from "./heap-counts.ts";
import type { SocketCounts } from "./socket-counts.ts";

export interface ProbedServer extends RunningServer {
  /** Counts in the server's process until the returned function is called. */
  countSockets(): Promise<() => Promise<SocketCounts>>;
  countAllocations(): Promise<() => Promise<HeapCounts>>;
}

/** A server whose frames, writes and allocations can be counted. Needs the build of this package. */
export async function startProbedServer(options: TenureOptions = {}): Promise<ProbedServer> {
  const probe = new URL("./probe.js", import.meta.url).href;
  const nodeOptions = `${options.env?.NODE_OPTIONS ?? ""} --import ${probe}`.trim();
  const server = await startServer({
    ...options,
    env: { ...options.env, NODE_OPTIONS: nodeOptions },
  });
  const [, port] = await server.waitForLine(/^probe at (\d+)$/);
  const count = async <Counts>(what: string) => {
    const ask = await connectProbe(Number(port));
    await ask(what);
    return async () => (await ask("end")) as Counts;
  };
  return {
    ...server,
    countSockets: () => count<SocketCounts>("sockets"),
    countAllocations: () => count<HeapCounts>("heap"),
  };
}

async function connectProbe(port: number): Promise<(line: string) => Promise<unknown>> {
  const socket = connect(port, "127.0.0.1").unref();
  const answers = createInterface({ input: socket })[Symbol.asyncIterator]();
  return async (line) => {
    socket.write(`${line}\n`);
    const { value } = await answers.next();
    if (line === "end") socket.destroy();
    return JSON.parse(value as string);
  };
}
