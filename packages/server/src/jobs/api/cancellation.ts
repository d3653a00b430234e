import type { Adoption } from "../flow/adoption.ts";
import type { AttemptOutcomes } from "../flow/attempt-outcomes.ts";
import type { TrackedJob } from "../job.ts";
import type { JobsParts } from "../parts.ts";
import { noJob } from "./job-queries.ts";

/** Cancels jobs for sessions and HTTP callers. */
export interface Cancellation {
  /** Throws `NOT_FOUND` if there is no such job, or `isOwn` refuses it. */
  cancel(jobId: string, isOwn: (job: TrackedJob) => boolean): Promise<void>;
}

const TRIES_MAX = 5;

export const createCancellation = (
  { tracked }: Pick<JobsParts, "tracked">,
  { outcomes, load }: { outcomes: Pick<AttemptOutcomes, "cancel">; load: Adoption["load"] },
): Cancellation => ({
  async cancel(jobId, isOwn) {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const job = tracked.get(jobId) ?? (await load(jobId));
      if (!job || !isOwn(job)) throw noJob(jobId);
      if (job.state === "FINISHED" || job.state === "RELEASED") return;
      const answer = await outcomes.cancel(job);
      if (answer === "absent") throw noJob(jobId);
      if (answer === "done") return;
      // Another attempt began meanwhile: the tracked state is out of date.
      tracked.release(job);
    }
  },
});
