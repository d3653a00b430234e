import type { TenureError } from "@tenure/protocol";
import { test as base } from "vitest";
import type { Down } from "../src/connection/connection.ts";
import type { RunContext, WorkerJob } from "../src/worker/attempt.ts";
import type { NodeRegistration } from "../src/worker/node-connection.ts";
import { Worker, type WorkerOptions } from "../src/worker/worker.ts";
import { type Arrivals, createArrivals } from "./arrivals.ts";
import { createManualClock, type ManualClock } from "./manual-clock.ts";
import { challenge } from "./node-fixture.ts";
import { type Peer, type PeerSocket, startPeer } from "./peer.ts";

export const JOB = "00000000-0000-7000-8000-000000000001";
export const OTHER_JOB = "00000000-0000-7000-8000-000000000002";

export const assign = (fields: object = {}) => ({
  type: "job_assign",
  job_id: JOB,
  attempt_id: 1,
  request_id: "r-1",
  pool: "asr",
  payload: "hi",
  timeout_ms: 30_000,
  ...fields,
});

/** A job that runs until the test ends it. */
export interface Running {
  job: WorkerJob;
  context: RunContext;
  resolve(body?: unknown): void;
  reject(error: unknown): void;
}

export interface Hired {
  worker: Worker;
  runs: Arrivals<Running>;
  ready: Arrivals<NodeRegistration>;
  downs: Arrivals<Down>;
  problems: Arrivals<TenureError>;
}

export const test = base.extend<{
  clock: ManualClock;
  peer: Peer;
  hire: (options?: Partial<WorkerOptions>) => Hired;
}>({
  // biome-ignore-start lint/correctness/noEmptyPattern: vitest reads the pattern to see what is needed
  clock: async ({}, use) => use(createManualClock()),
  peer: async ({}, use) => {
    const peer = await startPeer();
    await use(peer);
    await peer.close();
  },
  // biome-ignore-end lint/correctness/noEmptyPattern: as above
  hire: async ({ clock, peer }, use) => {
    const workers: Worker[] = [];
    await use((options) => {
      const hired = start({ clock, url: peer.url, ...options });
      workers.push(hired.worker);
      return hired;
    });
    for (const worker of workers) await fire(worker, clock);
  },
});

/** Closes it without waiting for real time. */
export async function fire(worker: Worker, clock: ManualClock): Promise<void> {
  const closed = worker.close({ withinMs: 0 });
  let isClosed = false;
  void closed.then(() => {
    isClosed = true;
  });
  while (!isClosed) {
    clock.advance(10_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function start(options: Partial<WorkerOptions> & Pick<WorkerOptions, "url">): Hired {
  const hired = {
    runs: createArrivals<Running>("job that runs"),
    ready: createArrivals<NodeRegistration>("registration"),
    downs: createArrivals<Down>("loss"),
    problems: createArrivals<TenureError>("problem"),
  };
  const worker = new Worker({
    pools: ["asr"],
    capacity: 2,
    random: () => 0.5,
    // Whether the peer lives is another test's matter; here time may pass without real pongs.
    limits: { pingEveryMs: 10_000_000 },
    run: (job, context) =>
      new Promise((resolve, reject) => hired.runs.push({ job, context, resolve, reject })),
    on: { ready: hired.ready.push, down: hired.downs.push, problem: hired.problems.push },
    ...options,
  });
  return { ...hired, worker };
}

/** The server's part of the handshake, up to the first heartbeat. Returns the registration of the worker. */
export async function admit(
  peer: Peer,
  { ready }: Hired,
  features?: string[],
): Promise<{ socket: PeerSocket; registered: Record<string, unknown> }> {
  const socket = await peer.accept();
  socket.send(challenge);
  const registered = await socket.receive();
  socket.send({
    type: "node_register_ack",
    node_id: registered.address,
    instance_id: "instance-1",
    epoch: 1,
    heartbeat_interval_ms: 5_000,
    protocol_version: 1,
    ...(features && { features }),
  });
  await ready.next();
  const first = await socket.receive();
  if (first.type !== "node_heartbeat") throw new Error(`a heartbeat first, not ${first.type}`);
  return { socket, registered };
}

/** The next message that is no heartbeat. */
export async function received(socket: PeerSocket): Promise<Record<string, unknown>> {
  for (;;) {
    const message = await socket.receive();
    if (message.type !== "node_heartbeat") return message;
  }
}

export const unsaid = (socket: PeerSocket): Record<string, unknown>[] =>
  socket.unread().filter(({ type }) => type !== "node_heartbeat");

export const resultAck = (outcome = "applied", fields: object = {}) => ({
  type: "job_result_ack",
  job_id: JOB,
  attempt_id: 1,
  outcome,
  ...fields,
});
