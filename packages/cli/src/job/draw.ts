import type { Job, JobTimelineEntry } from "@tenure/protocol";
import pc from "picocolors";
import { ago, type Cell, fields, shortId, table } from "../output.ts";
import { printable } from "../printable.ts";

export function drawList(jobs: readonly Job[]): string {
  if (jobs.length === 0) return "no jobs";
  return table(
    ["JOB", "REQUEST", "POOL", "STATE", "ATTEMPT", "NODE", "AGE"],
    jobs.map((job) => [
      job.job_id,
      job.request_id,
      job.pool,
      stateOf(job),
      String(job.attempt_id),
      shortId(job.node_id ?? "-"),
      ago(job.created_at),
    ]),
  );
}

export function drawOne(job: Job): string {
  const facts: [string, string | undefined][] = [
    ["job", job.job_id],
    ["request", job.request_id],
    ["pool", job.pool],
    ["state", job.state],
    ["outcome", job.outcome],
    ["attempt", String(job.attempt_id)],
    ["node", job.node_id],
    ["session", job.session_id],
    ["turn", job.turn_id],
    ["affinity", job.affinity],
    ["service", job.service],
    ["priority", job.priority?.toString()],
    ["trace", job.trace_id],
    ["error", job.error && `${job.error.code}: ${job.error.message}`],
    ["body", job.body === undefined ? undefined : JSON.stringify(job.body)],
  ];
  const known = facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
  return [fields(known), "", drawTimeline(job)].join("\n");
}

/** The steps of a job. The column AFTER counts from the submission. */
function drawTimeline({ created_at, timeline }: Job): string {
  if (timeline.length === 0) return pc.dim("the timeline is no longer kept");
  return table(
    ["AT", "AFTER", "STATE", "ATTEMPT", "NODE", "INSTANCE", "WHY"],
    timeline.map((entry): Cell[] => [
      timeOf(entry.at),
      since(created_at, entry.at),
      entry.state,
      String(entry.attempt_id),
      shortId(entry.node_id ?? "-"),
      entry.instance_id ?? "-",
      entry.reason ?? "",
    ]),
  );
}

/** One line per step, for `tenure job watch JOB`. */
export function drawStep({ created_at }: Job, entry: JobTimelineEntry): string {
  const where = entry.node_id ? ` on ${printable(shortId(entry.node_id))}` : "";
  const why = entry.reason ? pc.dim(` ${printable(entry.reason)}`) : "";
  return `${pc.dim(timeOf(entry.at))} ${since(created_at, entry.at).padStart(9)}  ${pc.bold(entry.state.padEnd(10))} attempt ${entry.attempt_id}${where}${why}`;
}

/** One line per job, for `tenure job watch`. */
export function drawLine(job: Job): string {
  const { text, paint } = stateOf(job);
  const where = job.node_id ? ` on ${printable(shortId(job.node_id))}` : "";
  const why = job.error ? pc.dim(` ${printable(`${job.error.code}: ${job.error.message}`)}`) : "";
  return `${printable(job.job_id)} ${printable(job.pool)} ${paint(printable(text))} attempt ${job.attempt_id}${where}${why}`;
}

function stateOf({ state, outcome }: Job): { text: string; paint: (text: string) => string } {
  if (outcome === undefined)
    return { text: state, paint: state === "RUNNING" ? pc.cyan : pc.yellow };
  return { text: outcome, paint: outcome === "succeeded" ? pc.green : pc.red };
}

/** Time of day without the date. */
const timeOf = (at: string): string => at.slice(11, 23);

function since(from: string, at: string): string {
  const ms = Date.parse(at) - Date.parse(from);
  return ms < 10_000 ? `+${ms} ms` : `+${(ms / 1_000).toFixed(1)} s`;
}
