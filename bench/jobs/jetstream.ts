import { randomUUID } from "node:crypto";
import { AckPolicy, connect, JSONCodec, RetentionPolicy, StorageType } from "nats";
import { type Begun, createAwaited, POOL, type Run, type SubmitJob, type Timed } from "./drive.ts";

export type Storage = "file" | "memory";

interface At {
  port: number;
  storage: Storage;
}

/** A result has no place in JetStream: the job names the subject that it goes to, as a message of core NATS. */
type Job = Timed & { id: string; replyTo: string };
type Reply = Begun & { id: string };

const jobs = JSONCodec<Job>();
const replies = JSONCodec<Reply>();

export async function workForJetstream(
  { port, capacity }: At & { capacity: number },
  run: Run,
): Promise<void> {
  const connection = await connect({ port });
  const manager = await connection.jetstreamManager();
  await manager.consumers.add(POOL, {
    durable_name: POOL,
    ack_policy: AckPolicy.Explicit,
    max_ack_pending: capacity,
  });
  const consumer = await connection.jetstream().consumers.get(POOL, POOL);
  // Asked for again when half of them have come, so twice the capacity keeps the worker busy.
  const messages = await consumer.consume({ max_messages: 2 * capacity });
  const takeAll = async () => {
    for await (const message of messages) {
      const { id, replyTo, ...timed } = jobs.decode(message.data);
      void run(timed).then((begun) => {
        connection.publish(replyTo, replies.encode({ id, ...begun }));
        message.ack();
      });
    }
  };
  void takeAll();
}

/** Makes the stream: a work queue that removes a job once it is acknowledged, and rejects a second one of the same id. */
export async function createJetstreamQueue({ port, storage }: At): Promise<void> {
  const connection = await connect({ port });
  const manager = await connection.jetstreamManager();
  await manager.streams.add({
    name: POOL,
    subjects: [POOL],
    retention: RetentionPolicy.Workqueue,
    storage: storage === "file" ? StorageType.File : StorageType.Memory,
  });
  await connection.close();
}

export async function submitToJetstream({ port }: At): Promise<SubmitJob> {
  const connection = await connect({ port });
  const jetstream = connection.jetstream();
  const replyTo = `${POOL}-results.${randomUUID()}`;
  const awaited = createAwaited<string>();
  connection.subscribe(replyTo, {
    callback: (_, message) => {
      const { id, ...begun } = replies.decode(message.data);
      awaited.arrived(id, begun);
    },
  });
  await connection.flush();
  return async (payload) => {
    const id = randomUUID();
    const result = awaited.result(id);
    await jetstream.publish(POOL, jobs.encode({ ...payload, id, replyTo }), { msgID: id });
    return result;
  };
}
