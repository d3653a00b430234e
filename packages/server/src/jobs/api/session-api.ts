import { type FinalizeReason, TenureError, toErrorMessage } from "@tenure/protocol";
import type { ResultDelivery } from "../flow/result-delivery.ts";
import type { Submit, Submitted } from "../flow/submit.ts";
import { recordedEnd } from "../job.ts";
import type { SessionConnection } from "../memory/connections.ts";
import type { JobsParts } from "../parts.ts";
import type { Turns } from "../turns/turns.ts";
import type { Cancellation } from "./cancellation.ts";
import { acceptedFrame } from "./frames.ts";
import type { JobSubmitText } from "./raw-json.ts";

/** Jobs for sessions on their sockets. Outcomes and errors are sent over the connection. */
export interface SessionJobs {
  submit(session: SessionConnection, message: JobSubmitText): void;
  /** With `updates_on_request`: from now on the session gets the states of this job, and at once the one it is in. */
  watch(session: SessionConnection, job: Watched): void;
  cancel(session: SessionConnection, jobId: string): Promise<void>;
  resultAcked(session: SessionConnection, jobId: string): void;
  finalizeTurn(session: SessionConnection, reason: FinalizeReason): Promise<void>;
  /** `turnPauseMs`: after so long without a job its turn is ended. */
  joined(session: SessionConnection, options: { turnPauseMs: number | undefined }): Promise<void>;
  left(session: SessionConnection): Promise<void>;
  /** The session's owner is written again after an outage of the store. */
  foundAgain(session: SessionConnection): void;
  /** The client has closed its session. */
  closed(session: SessionConnection): Promise<void>;
}

export interface Watched {
  request_id: string;
  job_id?: string | undefined;
}

export function createSessionJobs(
  {
    connections,
    tracked,
    notifier,
    metrics,
    log,
  }: Pick<JobsParts, "connections" | "tracked" | "notifier" | "metrics" | "log">,
  {
    submit,
    results,
    turns,
    cancellation,
    listenFor,
  }: {
    submit: Submit;
    results: ResultDelivery;
    turns: Turns;
    cancellation: Cancellation;
    listenFor: (jobId: string) => Promise<void>;
  },
): SessionJobs {
  function submitFor(session: SessionConnection, spec: JobSubmitText): void {
    const { link, sessionId, tenant, token } = session;
    if (spec.updates) link.updates?.add(spec.request_id);
    submit
      .submit(Object.assign(spec, { tenant, token, sessionId }), (submitted) =>
        sendAccepted(session, submitted),
      )
      .catch((error: unknown) => {
        metrics.submitted("refused");
        if (!(error instanceof TenureError))
          log.error(
            { event: "job.not-submitted", sessionId, error },
            "could not submit job; the session got the error",
          );
        link.send(toErrorMessage(error, { request_id: spec.request_id }));
      });
  }

  function sendAccepted(session: SessionConnection, submitted: Submitted): void {
    const { link, sessionId } = session;
    if (submitted.outcome === "accepted") {
      link.sendText(acceptedFrame(submitted.job, { duplicate: false }));
      return;
    }
    const { record } = submitted;
    const { jobId, outcome } = record;
    link.sendText(acceptedFrame(record, { duplicate: submitted.outcome === "duplicate" }));
    if (outcome && record.sessionId === sessionId)
      return void results.bring(session, jobId).catch(() => {});
    if (outcome) results.copy(session, recordedEnd(record, outcome));
    else if (record.sessionId !== sessionId) followFor(session, jobId);
  }

  /** A job of another session: this session gets a copy of its result. */
  function followFor({ sessionId }: SessionConnection, jobId: string): void {
    const unfollow = results.follow(jobId, (end) => {
      const session = connections.session(sessionId);
      if (session) results.copy(session, end);
    });
    listenFor(jobId).catch(unfollow);
  }

  return {
    submit: submitFor,
    watch({ sessionId, link: { updates } }, { request_id, job_id = "" }) {
      if (!updates || updates.has(request_id)) return;
      updates.add(request_id);
      const job = tracked.get(job_id);
      if (job?.sessionId === sessionId && job.state !== "CREATED") notifier.update(job, job.state);
    },
    async cancel(session, jobId) {
      try {
        await cancellation.cancel(
          jobId,
          (job) => job.tenant === session.tenant && job.sessionId === session.sessionId,
        );
      } catch (error) {
        session.link.send(toErrorMessage(error, { job_id: jobId }));
      }
    },
    resultAcked: (session, jobId) => results.acked(session, jobId),
    finalizeTurn: (session, reason) => turns.finalize(session, reason),
    async joined(session, { turnPauseMs }) {
      connections.addSession(session);
      await Promise.all([results.sessionJoined(session), turns.joined(session, turnPauseMs)]);
    },
    async left(session) {
      if (connections.removeSession(session)) turns.left(session);
      await results.sessionLeft(session);
    },
    foundAgain(session) {
      if (connections.session(session.sessionId) === session)
        results.sessionJoined(session).catch(() => {}); // then the client submits again
    },
    closed: (session) => turns.closed(session),
  };
}
