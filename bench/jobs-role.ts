import { createInterface } from "node:readline";
import { Session, Worker as TenureWorker } from "@tenure/sdk";
import { Worker as BullWorker, Queue, QueueEvents } from "bullmq";
import { type Begun, drive, type Load, type SubmitJob, type Timed, wallMs } from "./jobs-drive.ts";

/** One process of the bench: a worker, or whoever submits. */
export type Role =
  | { role: "worker"; system: "tenure"; url: string; capacity: number }
  | { role: "worker"; system: "bullmq"; redisPort: number; capacity: number }
  | { role: "load"; system: "tenure"; url: string; sessions: number }
  | { role: "load"; system: "bullmq"; redisPort: number };

const POOL = "bench";

const role = JSON.parse(process.argv[2] ?? "{}") as Role;
if (role.role === "worker") await work(role);
else await submitAsTold(role);

async function work(worker: Extract<Role, { role: "worker" }>): Promise<void> {
  const begun = async (): Promise<Begun> => ({ beganMs: wallMs() });
  if (worker.system === "tenure") {
    const { url, capacity } = worker;
    const on = { ready: () => console.log("ready") };
    new TenureWorker({ url, pools: [POOL], capacity, run: begun, on });
  } else {
    const connection = { host: "127.0.0.1", port: worker.redisPort };
    const options = { connection, concurrency: worker.capacity };
    await new BullWorker<Timed, Begun>(POOL, begun, options).waitUntilReady();
    console.log("ready");
  }
}

/** Loads come as lines on standard input; figures go out as lines. */
async function submitAsTold(load: Extract<Role, { role: "load" }>): Promise<void> {
  const submit = load.system === "tenure" ? throughSessions(load) : await throughBullmq(load);
  console.log("ready");
  let n = 0;
  for await (const line of createInterface({ input: process.stdin })) {
    const figures = await drive(JSON.parse(line) as Load, submit);
    console.log(`figures ${++n} ${JSON.stringify(figures)}`);
  }
}

function throughSessions({ url, sessions }: { url: string; sessions: number }): SubmitJob {
  const all = Array.from({ length: sessions }, () => new Session({ url }));
  let next = 0;
  return async (payload) => {
    const session = all[next++ % all.length]!;
    return (await session.submit<Begun>({ pool: POOL, payload })).body;
  };
}

/** One listener for all: `waitUntilFinished` sets up three of its own per job, and is slower. */
async function throughBullmq({ redisPort }: { redisPort: number }): Promise<SubmitJob> {
  const connection = { host: "127.0.0.1", port: redisPort };
  const queue = new Queue<Timed, Begun>(POOL, { connection });
  const events = new QueueEvents(POOL, { connection });
  const waiting = new Map<string, (begun: Begun) => void>();
  const early = new Map<string, Begun>();
  events.on("completed", ({ jobId, returnvalue }) => {
    const begun = returnvalue as unknown as Begun;
    const resolve = waiting.get(jobId);
    if (!resolve) return void early.set(jobId, begun);
    waiting.delete(jobId);
    resolve(begun);
  });
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  return async (payload) => {
    const { id = "" } = await queue.add("job", payload);
    const begun = early.get(id);
    early.delete(id);
    return begun ?? new Promise<Begun>((resolve) => waiting.set(id, resolve));
  };
}
