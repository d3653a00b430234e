import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import {
  JOB_OUTCOMES,
  JOB_STATES,
  type Job,
  JobId,
  type JobOutcome,
  type JobState,
  TenureError,
} from "@tenure/protocol";
import { type Admin, ROUTES } from "@tenure/sdk";
import { Command, InvalidArgumentError, Option } from "commander";
import type { Context } from "../context.ts";
import { drawLine, drawList, drawOne, drawStep } from "../job/draw.ts";
import { createWatch, hasEnded, newSteps } from "../job/watch.ts";
import { print } from "../output.ts";
import { asksServer, connect, type RemoteFlags } from "../remote.ts";

/** `tenure job submit | ls | show | cancel | watch`. */
export function jobCommand(context: Context): Command {
  const command = new Command();
  for (const add of [submit, ls, show, cancel, watch]) command.addCommand(add(context));
  return command;
}

const named = (name: string, summary: string): Command =>
  asksServer(new Command(name).description(summary));

interface SubmitFlags extends RemoteFlags {
  pool: string;
  file?: string;
  requestId?: string;
  service?: string;
  priority?: number;
  timeoutMs?: number;
  pendingMs?: number;
  traceId?: string;
  wait: number;
}

function submit(context: Context): Command {
  return named("submit", "submit a job and wait for its end; 1 when it did not succeed")
    .argument("[payload]", "JSON; a text in quotes of its own: '\"hello\"'")
    .requiredOption("--pool <pool>", "which nodes may run it")
    .option("-f, --file <file>", "read the payload from a file; - is standard input")
    .option("--request-id <id>", "submitted again under the same id, it is the same job")
    .option("--service <service>", "only nodes that have it ready")
    .option("--priority <n>", "0 to 9, higher first", wholeNumber)
    .option("--timeout-ms <n>", "how long one attempt may run", wholeNumber)
    .option("--pending-ms <n>", "how long it may wait for a node", wholeNumber)
    .option("--trace-id <id>", "found again in logs and traces")
    .option("--wait <seconds>", "how long to wait for the end; 0 does not", wholeNumber, 60)
    .action(async (payload: string | undefined, flags: SubmitFlags) => {
      const body = {
        request_id: flags.requestId ?? randomUUID(),
        pool: flags.pool,
        payload: payloadOf(payload, flags.file),
        service: flags.service,
        priority: flags.priority,
        timeout_ms: flags.timeoutMs,
        pending_ms: flags.pendingMs,
        trace_id: flags.traceId,
      };
      const job = await submitAndWait(connect(flags), body, flags.wait * 1_000);
      print(job, flags, drawOne);
      if (hasEnded(job) && job.outcome !== "succeeded") context.exitCode = 1;
    });
}

/** One request is not kept open for longer; asked again under its id, it is the same job. */
const ASK_MS_MAX = 20_000;

async function submitAndWait(
  admin: Admin,
  body: Parameters<typeof admin.call<typeof ROUTES.submitJob>>[1]["body"],
  waitMs: number,
): Promise<Job> {
  const untilMs = performance.now() + waitMs;
  for (;;) {
    const leftMs = Math.max(0, Math.round(untilMs - performance.now()));
    const query = { wait_ms: Math.min(leftMs, ASK_MS_MAX) };
    const job = await admin.call(ROUTES.submitJob, { query, body });
    if (hasEnded(job) || performance.now() >= untilMs) return job;
  }
}

interface ListFlags extends RemoteFlags {
  state?: JobState;
  outcome?: JobOutcome;
  pool?: string;
  requestId?: string;
  session?: string;
  limit: number;
  cursor?: string;
}

const lists = (command: Command): Command =>
  command
    .addOption(new Option("--state <state>", "only in this state").choices(JOB_STATES))
    .addOption(new Option("--outcome <outcome>", "only ended so").choices(JOB_OUTCOMES))
    .option("--pool <pool>", "only of this pool")
    .option("--request-id <id>", "only of this request")
    .option("--session <id>", "only of this session")
    .option("--limit <n>", "how many at most", wholeNumber, 50);

function ls(): Command {
  return lists(named("ls", "list recent jobs, newest first"))
    .option("--cursor <cursor>", "where the page before ended")
    .action(async (flags: ListFlags) => {
      const page = await connect(flags).call(ROUTES.listJobs, { query: queryOf(flags) });
      print(page, flags, ({ items, next_cursor }) =>
        [drawList(items), ...(next_cursor ? [`more: --cursor ${next_cursor}`] : [])].join("\n"),
      );
    });
}

const queryOf = ({ state, outcome, pool, requestId, session, limit, cursor }: ListFlags) => ({
  state,
  outcome,
  pool,
  request_id: requestId,
  session_id: session,
  limit,
  cursor,
});

function show(): Command {
  return named("show", "show one job: what happened when, on which node, and why")
    .argument("<job>", "its id, or its request id")
    .action(async (id: string, flags: RemoteFlags) =>
      print(await find(connect(flags), id), flags, drawOne),
    );
}

function cancel(): Command {
  return named("cancel", "cancel jobs; one that has ended stays as it is")
    .argument("<job...>", "ids, or request ids")
    .action(async (ids: string[], flags: RemoteFlags) => {
      const admin = connect(flags);
      const items: Job[] = [];
      try {
        for (const id of ids) {
          const { job_id } = await find(admin, id);
          items.push(await admin.call(ROUTES.cancelJob, { params: { id: job_id } }));
        }
      } finally {
        if (items.length > 0) print({ items }, flags, () => items.map(drawLine).join("\n"));
      }
    });
}

const LOOK_EVERY_MS = 500;

function watch(context: Context): Command {
  return lists(named("watch", "follow one job to its end, or all as they move"))
    .argument("[job]", "its id, or its request id; without one: all")
    .action(async (id: string | undefined, flags: ListFlags) => {
      const stopping = new AbortController();
      process.once("SIGINT", () => stopping.abort());
      try {
        if (id === undefined) await watchAll(flags, stopping.signal);
        else await watchOne(id, { flags, context, signal: stopping.signal });
      } catch (error) {
        if (!stopping.signal.aborted) throw error;
      }
    });
}

async function watchOne(
  id: string,
  { flags, context, signal }: { flags: RemoteFlags; context: Context; signal: AbortSignal },
): Promise<void> {
  const admin = connect(flags);
  let before: Job | undefined;
  for (;;) {
    const job = await find(admin, before?.job_id ?? id);
    for (const step of newSteps(job, before)) say(step, flags, () => drawStep(job, step));
    before = job;
    if (hasEnded(job)) {
      if (!flags.json) process.stdout.write(`${drawLine(job)}\n`);
      if (job.outcome !== "succeeded") context.exitCode = 1;
      return;
    }
    await wait(LOOK_EVERY_MS, undefined, { signal });
  }
}

/** By looking again and again: that way it sees the jobs of every instance. */
async function watchAll(flags: ListFlags, signal: AbortSignal): Promise<void> {
  const admin = connect(flags);
  const moved = createWatch();
  for (;;) {
    const { items } = await admin.call(ROUTES.listJobs, { query: queryOf(flags) });
    for (const job of moved(items)) say(job, flags, () => drawLine(job));
    await wait(LOOK_EVERY_MS, undefined, { signal });
  }
}

function say(value: object, { json }: RemoteFlags, draw: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : draw()}\n`);
}

// --- what several commands need ---

async function find(admin: Admin, id: string): Promise<Job> {
  if (JobId.safeParse(id).success) return admin.call(ROUTES.readJob, { params: { id } });
  const { items } = await admin.call(ROUTES.listJobs, { query: { request_id: id, limit: 1 } });
  const [job] = items;
  if (!job) throw new TenureError("NOT_FOUND", { what: "job of request", id });
  return admin.call(ROUTES.readJob, { params: { id: job.job_id } });
}

function payloadOf(argument: string | undefined, file: string | undefined): unknown {
  const text = file === undefined ? argument : readFileSync(file === "-" ? 0 : file, "utf8");
  if (text === undefined)
    throw new TenureError("INVALID_REQUEST", { reason: "name a payload, or a file with --file" });
  try {
    return JSON.parse(text);
  } catch {
    throw new TenureError("INVALID_REQUEST", {
      reason: "the payload is not JSON; a text needs quotes of its own: '\"hello\"'",
    });
  }
}

function wholeNumber(text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("must be a whole number");
}
