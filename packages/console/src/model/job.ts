import type { Job, JobOutcome, JobTimelineEntry } from "@tenure/protocol";
import type { Condition, Tone } from "./tone.ts";

const OUTCOMES: Record<JobOutcome, Condition> = {
  succeeded: { tone: "good", word: "succeeded" },
  failed: { tone: "bad", word: "failed" },
  cancelled: { tone: "idle", word: "cancelled" },
  timed_out: { tone: "warn", word: "timed out" },
  no_node: { tone: "warn", word: "no node" },
  attempts_exhausted: { tone: "bad", word: "attempts exhausted" },
};

export const OUTCOME_LIST = Object.keys(OUTCOMES) as JobOutcome[];

export function jobCondition({ state, outcome }: Pick<Job, "state" | "outcome">): Condition {
  if (outcome) return OUTCOMES[outcome];
  switch (state) {
    case "CREATED":
      return { tone: "idle", word: "waiting" };
    case "DISPATCHED":
      return { tone: "busy", word: "dispatched" };
    case "ACCEPTED":
      return { tone: "busy", word: "accepted" };
    case "RUNNING":
      return { tone: "busy", word: "running" };
    default:
      return { tone: "idle", word: "ended" };
  }
}

export const isEnded = ({ state }: Pick<Job, "state">): boolean =>
  state === "FINISHED" || state === "RELEASED";

/** One step of an attempt as a bar: start, duration and state. */
export interface Span {
  state: JobTimelineEntry["state"];
  tone: Tone;
  fromMs: number;
  toMs: number;
  entry: JobTimelineEntry;
}

export interface Attempt {
  attemptId: number;
  nodeId: string | undefined;
  entries: JobTimelineEntry[];
  spans: Span[];
}

const SPAN_TONES: Record<JobTimelineEntry["state"], Tone> = {
  CREATED: "idle",
  DISPATCHED: "warn",
  ACCEPTED: "busy",
  RUNNING: "good",
  FINISHED: "idle",
  RELEASED: "idle",
};

/**
 * Groups the timeline by attempt. A step lasts until the next step of any attempt; the last one until now or the end.
 * The run of a failed attempt has the tone of its outcome.
 */
export function attemptsOf(job: Pick<Job, "timeline" | "outcome">, nowMs: number): Attempt[] {
  const entries = [...job.timeline].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const attempts = new Map<number, Attempt>();
  for (const [index, entry] of entries.entries()) {
    const { attempt_id: attemptId, node_id: nodeId, state } = entry;
    const attempt = attempts.get(attemptId) ?? { attemptId, nodeId, entries: [], spans: [] };
    attempts.set(attemptId, attempt);
    attempt.nodeId = nodeId ?? attempt.nodeId;
    attempt.entries.push(entry);
    if (isEnded({ state })) continue;
    const next = entries[index + 1];
    attempt.spans.push({
      state,
      tone: state === "RUNNING" ? runTone(job, entry, next) : SPAN_TONES[state],
      fromMs: Date.parse(entry.at),
      toMs: next ? Date.parse(next.at) : Math.max(nowMs, Date.parse(entry.at)),
      entry,
    });
  }
  return [...attempts.values()].sort((a, b) => a.attemptId - b.attemptId);
}

function runTone(
  { outcome }: Pick<Job, "outcome">,
  entry: JobTimelineEntry,
  next: JobTimelineEntry | undefined,
): Tone {
  if (next && next.attempt_id !== entry.attempt_id) return "bad";
  return next && outcome ? OUTCOMES[outcome].tone : SPAN_TONES.RUNNING;
}

/** Time from creation to the end, or until now. */
export function jobDurationMs(
  job: Pick<Job, "created_at" | "ended_at" | "timeline" | "state">,
  nowMs: number,
) {
  // Lists have no timelines.
  const end = job.timeline.find(({ state }) => state === "FINISHED")?.at ?? job.ended_at;
  const endMs = end ? Date.parse(end) : isEnded(job) ? undefined : nowMs;
  return endMs === undefined ? undefined : Math.max(0, endMs - Date.parse(job.created_at));
}
