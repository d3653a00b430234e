import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { JobFailed, type Session, Worker } from "@tenure/sdk";
import { HOT_KINDS, type HotKind } from "./fleet.ts";
import { createJobScene, PATIENT, POOL } from "./jobs-scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const RIVALS = 64;
/** Ids that are asked for at the same time; each by all rivals. */
const IDS_AT_ONCE = 4;

/** I4 with real sockets: however many ask at however many instances, a request id has one job. */
export const jobsOnce: Proof = {
  name: "jobs-once",
  summary:
    "64 sessions at two instances submit one request id at once: one job, run once, told to all",
  async run(run) {
    const kinds = run.size === "full" ? HOT_KINDS : HOT_KINDS.slice(0, 1);
    for (const hot of kinds) await runOn(hot, run);
  },
};

async function runOn(hot: HotKind, { size, print }: ProofRun): Promise<void> {
  const ids = size === "full" ? 1_000 : 20;
  const scene = await createJobScene(hot, { env: PATIENT });
  const runs = new Map<string, number>();
  let worker: Worker | undefined;
  try {
    const instances = [await scene.startInstance(), await scene.startInstance()];
    worker = new Worker({
      url: instances[0]!.url,
      pools: [POOL],
      capacity: 64,
      run({ request_id, payload }) {
        runs.set(request_id, (runs.get(request_id) ?? 0) + 1);
        return payload;
      },
    });
    const rivals = Array.from({ length: RIVALS }, (_, n) =>
      scene.openSession({ url: instances[n % 2]!.url }),
    );
    const startedMs = performance.now();
    const left = Array.from({ length: ids }, () => randomUUID());
    const jobs = new Set<string>();
    const asker = async () => {
      for (let id = left.pop(); id !== undefined; id = left.pop())
        jobs.add(await submitEverywhere(rivals, id));
    };
    await Promise.all(Array.from({ length: IDS_AT_ONCE }, asker));
    const twice = [...runs.values()].filter((count) => count !== 1).length;
    assert.deepEqual({ jobs: jobs.size, run: runs.size, twice }, { jobs: ids, run: ids, twice: 0 });
    const tookS = ((performance.now() - startedMs) / 1_000).toFixed(1);
    print(`${hot}: ${ids} ids × ${RIVALS} sessions: ${jobs.size} jobs, each run once; ${tookS} s`);

    await refusedToAnotherBody(rivals[0]!, rivals[1]!);
    print(`${hot}: the same id with another body is REQUEST_ID_REUSED at the other instance`);
    await scene.untilAllSlotsAreFree();
  } finally {
    await worker?.close({ withinMs: 0 });
    await scene.stop();
  }
}

/** All at once; the one job they all got. */
async function submitEverywhere(sessions: Session[], requestId: string): Promise<string> {
  const payload = { say: requestId };
  const results = await Promise.all(
    sessions.map((session) => session.submit({ pool: POOL, payload, requestId })),
  );
  const jobs = new Set(results.map(({ job_id }) => job_id));
  assert.equal(jobs.size, 1, `request ${requestId} became ${jobs.size} jobs`);
  for (const { body } of results) assert.deepEqual(body, payload);
  return [...jobs][0]!;
}

async function refusedToAnotherBody(first: Session, second: Session): Promise<void> {
  const requestId = randomUUID();
  await first.submit({ pool: POOL, payload: "mine", requestId });
  const refusal = await second
    .submit({ pool: POOL, payload: "not mine", requestId })
    .catch((error: unknown) => error);
  assert(!(refusal instanceof JobFailed), "refused, not failed");
  assert.equal((refusal as { code?: string }).code, "REQUEST_ID_REUSED");
}
