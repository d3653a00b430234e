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
import { Command, Option } from "commander";
import type { Context } from "../context.ts";
import { drawLine, drawList, drawOne, drawStep } from "../job/draw.ts";
import { createWatch, hasEnded, newSteps } from "../job/watch.ts";
import { wholeNumber } from "../numbers.ts";
import { print } from "../output.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure job submit | ls | show | cancel | watch`. */
export function jobCommand(context: Context): Command {
  const command = new Command();
  for (const add of [submit, ls, show, cancel, watch]) command.addCommand(add(context));
  return command;
}

const subcommand = (name: string, summary: string): Command =>
  withServerFlags(new Command(name).description(summary));

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
  return subcommand("submit", "submit a job, wait for its result; 1 if it fails")
    .argument("[payload]", "JSON; quote a string twice: '\"hello\"'")
    .requiredOption("--pool <pool>", "pool of workers to run it")
    .option("-f, --file <file>", "read the payload from a file; - is standard input")
    .option("--request-id <id>", "idempotency key: the same id is the same job")
    .option("--service <service>", "only nodes that offer this service")
    .option("--priority <n>", "0 to 9, higher first", wholeNumber)
    .option("--timeout-ms <n>", "time limit of each attempt", wholeNumber)
    .option("--pending-ms <n>", "how long to wait for a free node", wholeNumber)
    .option("--trace-id <id>", "trace id for logs and traces")
    .option("--wait <seconds>", "time to wait for the result; 0: do not wait", wholeNumber, 60)
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

/** Limit of one request. The next one has the same request id, so it waits for the same job. */
const REQUEST_WAIT_MS_MAX = 20_000;

async function submitAndWait(
  admin: Admin,
  body: Parameters<typeof admin.call<typeof ROUTES.submitJob>>[1]["body"],
  waitMs: number,
): Promise<Job> {
  const untilMs = performance.now() + waitMs;
  for (;;) {
    const leftMs = Math.max(0, Math.round(untilMs - performance.now()));
    const query = { wait_ms: Math.min(leftMs, REQUEST_WAIT_MS_MAX) };
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

const withListFlags = (command: Command): Command =>
  command
    .addOption(new Option("--state <state>", "only in this state").choices(JOB_STATES))
    .addOption(new Option("--outcome <outcome>", "only with this outcome").choices(JOB_OUTCOMES))
    .option("--pool <pool>", "only this pool")
    .option("--request-id <id>", "only this request")
    .option("--session <id>", "only this session")
    .option("--limit <n>", "maximum number of jobs", wholeNumber, 50);

function ls(): Command {
  return withListFlags(subcommand("ls", "list recent jobs, newest first"))
    .option("--cursor <cursor>", "next_cursor of the previous page")
    .action(async (flags: ListFlags) => {
      const page = await connect(flags).call(ROUTES.listJobs, { query: queryOf(flags) });
      print(page, flags, ({ items, next_cursor }) =>
        [drawList(items), ...(next_cursor ? [`next page: --cursor ${next_cursor}`] : [])].join(
          "\n",
        ),
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
  return subcommand("show", "show one job with its attempts, nodes and reasons")
    .argument("<job>", "job id or request id")
    .action(async (id: string, flags: RemoteFlags) =>
      print(await find(connect(flags), id), flags, drawOne),
    );
}

function cancel(): Command {
  return subcommand("cancel", "cancel jobs; ended jobs are not changed")
    .argument("<job...>", "job ids or request ids")
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

const POLL_EVERY_MS = 500;

function watch(context: Context): Command {
  return withListFlags(subcommand("watch", "follow one job until it ends, or all jobs"))
    .argument("[job]", "job id or request id (default: all jobs)")
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
    for (const step of newSteps(job, before)) printLine(step, flags, () => drawStep(job, step));
    before = job;
    if (hasEnded(job)) {
      if (!flags.json) process.stdout.write(`${drawLine(job)}\n`);
      if (job.outcome !== "succeeded") context.exitCode = 1;
      return;
    }
    await wait(POLL_EVERY_MS, undefined, { signal });
  }
}

/** Polls the list, which has the jobs of every instance. */
async function watchAll(flags: ListFlags, signal: AbortSignal): Promise<void> {
  const admin = connect(flags);
  const changedJobs = createWatch();
  for (;;) {
    const { items } = await admin.call(ROUTES.listJobs, { query: queryOf(flags) });
    for (const job of changedJobs(items)) printLine(job, flags, () => drawLine(job));
    await wait(POLL_EVERY_MS, undefined, { signal });
  }
}

function printLine(value: object, { json }: RemoteFlags, draw: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : draw()}\n`);
}

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
    throw new TenureError("INVALID_REQUEST", {
      reason: "no payload given; pass it as an argument or with --file",
    });
  try {
    return JSON.parse(text);
  } catch {
    throw new TenureError("INVALID_REQUEST", {
      reason: "the payload is not JSON; quote a string twice: '\"hello\"'",
    });
  }
}
