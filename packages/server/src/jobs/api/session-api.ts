import {
  type FinalizeReason,
  type Job,
  serves,
  TenureError,
  type TurnView,
  toErrorMessage,
} from "@tenure/protocol";
import type { JobsContext } from "../context.ts";
import type { Endings } from "../flow/attempt-outcomes.ts";
import { endingOf, type Results } from "../flow/result-delivery.ts";
import type { Submit, Submitted } from "../flow/submit.ts";
import type { SessionEnd } from "../memory/connections.ts";
import type { LiveJob } from "../memory/tracked-jobs.ts";
import { listen, readJob } from "../store/job-store.ts";
import type { Turns } from "../turns/turns.ts";
import { createReading, type JobFilter, jobText, noJob } from "./job-queries.ts";
import type { JobSpecText, JobSubmitText } from "./raw-json.ts";

/** Whoever wants something done: a session on its socket, or somebody over HTTP. The counterpart of the node desk. */
export interface ClientDesk {
  readonly sessions: SessionJobs;
  readonly http: HttpJobs;
}

export interface SessionJobs {
  submit(session: SessionEnd, message: JobSubmitText): void;
  cancel(session: SessionEnd, jobId: string): Promise<void>;
  resultAcked(session: SessionEnd, jobId: string): void;
  finalizeTurn(session: SessionEnd, reason: FinalizeReason): Promise<void>;
  /** `turnPauseMs`: after so long without a job its turn is ended for it. */
  joined(session: SessionEnd, options: { turnPauseMs: number | undefined }): Promise<void>;
  left(session: SessionEnd): Promise<void>;
  /** Its owner is written again after the store was away. */
  foundAgain(session: SessionEnd): void;
  /** The client is done for good. */
  closed(session: SessionEnd): Promise<void>;
}

export interface HttpJobs {
  /** `ended`: within `waitMs`. `job`: as `jobText` writes it. `gone`: the caller hung up, and the wait ends. */
  submit(
    spec: JobSpecText,
    by: { tenant: string; token?: string | undefined; waitMs: number; gone?: AbortSignal },
  ): Promise<{ job: string; ended: boolean }>;
  list(filter: JobFilter): Promise<{ items: Job[]; next_cursor: string | null }>;
  /** As `jobText` writes it. `token`: only what the token of this name submitted. */
  read(jobId: string, tenant: string, token?: string): Promise<string>;
  /** As `jobText` writes it. */
  cancel(jobId: string, tenant: string, token?: string): Promise<string>;
  readTurn(turnId: string, tenant: string, token?: string): Promise<TurnView>;
}

export interface ClientDeskStory {
  submit: Submit;
  results: Results;
  turns: Turns;
  endings: Pick<Endings, "cancel">;
  /** A job as its record has it, whoever has it in hand. */
  load(jobId: string): Promise<LiveJob | undefined>;
}

const CANCEL_TRIES_MAX = 5;
const HTTP_LOOK_MS = 1_000;

export function createClientDesk(context: JobsContext, story: ClientDeskStory): ClientDesk {
  const { hot, instanceId, clock, log, meter, book, links } = context;
  const { submit, results, turns, endings, load } = story;
  const reading = createReading(hot);

  function submitFor(session: SessionEnd, { type: _, ...spec }: JobSubmitText): void {
    const { link, sessionId, tenant, token } = session;
    submit
      .submit({ ...spec, tenant, token, sessionId }, (submitted) =>
        tellAccepted(session, submitted),
      )
      .catch((error: unknown) => {
        meter.submitted("refused");
        if (!(error instanceof TenureError))
          log.error(
            { event: "job.not-submitted", sessionId, error },
            "a submit failed unexpectedly",
          );
        link.send(toErrorMessage(error, { request_id: spec.request_id }));
      });
  }

  function tellAccepted(session: SessionEnd, submitted: Submitted): void {
    const { link, sessionId } = session;
    if (submitted.outcome === "accepted") {
      const { requestId, jobId, turnId } = submitted.job;
      link.sendText(acceptedFrame({ requestId, jobId, turnId, duplicate: false }));
      return;
    }
    const { record } = submitted;
    const { requestId, jobId, turnId, outcome } = record;
    link.sendText(acceptedFrame({ requestId, jobId, turnId, duplicate: true }));
    if (outcome && record.sessionId === sessionId)
      return void results.bring(session, jobId).catch(() => {});
    if (outcome) results.copy(session, endingOf(record, outcome));
    else if (record.sessionId !== sessionId) followFor(session, jobId);
  }

  /** Another session's job: this one hears of its end too. */
  function followFor({ sessionId }: SessionEnd, jobId: string): void {
    const unfollow = results.follow(jobId, (ending) => {
      const session = links.session(sessionId);
      if (session) results.copy(session, ending);
    });
    listenFor(jobId).catch(unfollow);
  }

  /** Whoever ends it will ring here; should it have ended meanwhile, nobody will. */
  async function listenFor(jobId: string): Promise<void> {
    const now = await listen(hot, jobId, instanceId);
    if (now?.state === "FINISHED" || now?.state === "RELEASED") await results.endedElsewhere(jobId);
  }

  async function cancelFor(session: SessionEnd, jobId: string): Promise<void> {
    try {
      await cancelJob(
        jobId,
        (job) => job.tenant === session.tenant && job.sessionId === session.sessionId,
      );
    } catch (error) {
      session.link.send(toErrorMessage(error, { job_id: jobId }));
    }
  }

  async function cancelJob(jobId: string, isOwn: (job: LiveJob) => boolean): Promise<void> {
    for (let tries = 0; tries < CANCEL_TRIES_MAX; tries++) {
      const job = book.get(jobId) ?? (await load(jobId));
      if (!job || !isOwn(job)) throw noJob(jobId);
      const answered = await endings.cancel(job);
      if (answered.outcome === "absent") throw noJob(jobId);
      if (answered.answers[0] !== "stale" && answered.answers[0] !== "ahead") return;
      // It went to another attempt in this moment: what is in hand is out of date.
      book.drop(job);
    }
  }

  const http: HttpJobs = {
    ...reading,
    readTurn: turns.read,
    async submit(spec, { tenant, token, waitMs, gone }) {
      let submitted: Submitted | undefined;
      await submit.submit({ ...spec, tenant, token }, (answer) => {
        submitted = answer;
      });
      if (!submitted) throw new TenureError("INTERNAL", {});
      const jobId = submitted.outcome === "accepted" ? submitted.job.jobId : submitted.record.jobId;
      const isOwn = submitted.outcome === "accepted";
      if (waitMs > 0) await untilEnded(jobId, { waitMs, isOwn, gone });
      const record = await reading.find(jobId, tenant);
      return { job: jobText(record), ended: record.outcome !== undefined };
    },
    async cancel(jobId, tenant, token) {
      const isOwn = (job: LiveJob) =>
        serves([tenant], job.tenant) && (token === undefined || job.token === token);
      await cancelJob(jobId, isOwn);
      return reading.read(jobId, tenant);
    },
  };

  /** Its end is heard of; and looked for now and then, should the word get lost. */
  async function untilEnded(
    jobId: string,
    { waitMs, isOwn, gone }: { waitMs: number; isOwn: boolean; gone: AbortSignal | undefined },
  ): Promise<void> {
    if (gone?.aborted) return;
    const over = new AbortController();
    const end = () => over.abort();
    const unfollow = results.follow(jobId, end);
    gone?.addEventListener("abort", end, { once: true });
    if (!isOwn) listenFor(jobId).catch(() => {});
    const untilMs = clock.monotonicMs() + waitMs;
    try {
      while (!over.signal.aborted && (await readJob(hot, jobId))?.outcome === undefined) {
        const leftMs = untilMs - clock.monotonicMs();
        if (leftMs <= 0) return;
        await clock.sleep(Math.min(leftMs, HTTP_LOOK_MS), over.signal);
      }
    } finally {
      unfollow();
      gone?.removeEventListener("abort", end);
    }
  }

  return {
    http,
    sessions: {
      submit: submitFor,
      cancel: cancelFor,
      resultAcked: results.acked,
      finalizeTurn: turns.finalize,
      async joined(session, { turnPauseMs }) {
        links.addSession(session);
        await Promise.all([results.sessionJoined(session), turns.joined(session, turnPauseMs)]);
      },
      async left(session) {
        if (links.removeSession(session)) turns.left(session);
        await results.sessionLeft(session);
      },
      foundAgain(session) {
        if (links.session(session.sessionId) === session)
          results.sessionJoined(session).catch(() => {}); // the client asks again, then
      },
      closed: turns.closed,
    },
  };
}

const acceptedFrame = (accepted: {
  requestId: string;
  jobId: string;
  turnId: string | undefined;
  duplicate: boolean;
}): string =>
  JSON.stringify({
    type: "job_accepted",
    request_id: accepted.requestId,
    job_id: accepted.jobId,
    turn_id: accepted.turnId,
    duplicate: accepted.duplicate,
  });
