import type { JobAttempt, JobResultToServer } from "@tenure/protocol";

/** How a job ended here. */
export type JobEnd = Pick<JobResultToServer, "success" | "body" | "error">;

/** As it goes over the wire. What is no JSON is a failure of the job, not of the worker. */
export function resultFrame({ job_id, attempt_id }: JobAttempt, end: JobEnd): string {
  const head = { type: "job_result", job_id, attempt_id } as const;
  try {
    return JSON.stringify({ ...head, ...end } satisfies JobResultToServer);
  } catch (error) {
    const failure = { code: "INTERNAL", message: `the result is not JSON: ${String(error)}` };
    return JSON.stringify({ ...head, success: false, error: failure });
  }
}
