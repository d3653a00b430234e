import { serves } from "@tenure/protocol";
import type { Destination, Received } from "../../delivery/contract.ts";
import type { Doorbell } from "../../delivery/doorbell.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import { assignText } from "../api/frames.ts";
import type { JobsContext } from "../context.ts";
import type { NodeEnd } from "../memory/connections.ts";
import type { LiveJob, Place } from "../memory/tracked-jobs.ts";
import { readAttempts, readJob } from "../store/job-store.ts";
import type { Endings } from "./attempt-outcomes.ts";
import type { Results } from "./result-delivery.ts";

/** What other instances tell this one about jobs. The record says what there is to do. */
export interface Bells {
  receive(message: Doorbell): Promise<Received>;
  route(message: Doorbell): Promise<Destination>;
}

const COMING_TRIES = 10;
const COMING_PAUSE_MS = 20;

export function createBells(
  context: JobsContext,
  story: {
    results: Results;
    endings: Pick<Endings, "retry">;
    takeUp(jobId: string, at: Place, node?: NodeEnd): Promise<LiveJob | undefined>;
  },
): Bells {
  const { hot, instanceId, clock, links, book, deadlines } = context;

  async function receive(message: Doorbell): Promise<Received> {
    switch (message.kind) {
      case "job.assign":
        return assign(message);
      case "job.cancel":
        return cancel(message);
      case "job.result":
        return result(message);
      case "job.ended":
        await story.results.endedElsewhere(message.job_id);
        return "done";
      default:
        return "retry"; // of a newer version: somebody who knows it may adopt it
    }
  }

  async function assign({ job_id, attempt_id, node_id = "" }: Doorbell): Promise<Received> {
    const node = await soon(() => links.node(node_id));
    const owner = node ? instanceId : await instanceOf(hot, { node_id }, instanceId);
    if (owner !== undefined && owner !== instanceId) return "elsewhere";
    const job = await story.takeUp(job_id, { attemptId: attempt_id, nodeId: node_id }, node);
    if (job?.state !== "DISPATCHED") return "superseded";
    // An instance of 0.1.0 knows no tenants of nodes.
    if (node && !serves(node.snapshot?.tenants, job.tenant)) {
      await story.endings.retry(job, "node_draining", "its node does not serve this tenant");
      return "superseded";
    }
    if (!node) {
      // It left a moment before this came: whoever saw that did not know of this job yet.
      await story.endings.retry(job, "node_lost", "it was gone before the job came");
      return "superseded";
    }
    const payload = job.payload ?? (await readJob(hot, job_id, { payload: true }))?.payload;
    if (payload === undefined) return "superseded";
    node.link.sendText(assignText(job, payload));
    job.payload = undefined;
    return "done";
  }

  async function cancel({ job_id, attempt_id, node_id = "", reason }: Doorbell): Promise<Received> {
    const node = links.node(node_id);
    if (!node) return "elsewhere";
    const job = book.get(job_id);
    if (job?.attemptId === attempt_id && job.nodeId === node_id && book.drop(job))
      deadlines.clear(job_id);
    const words = typeof reason === "string" ? reason : "over";
    node.link.send({ type: "job_cancel", job_id, attempt_id, reason: words });
    return "done";
  }

  async function result({ job_id, session_id = "" }: Doorbell): Promise<Received> {
    const session = await soon(() => links.session(session_id));
    if (!session) return "elsewhere";
    return (await story.results.bring(session, job_id)) === "sent" ? "done" : "superseded";
  }

  /** Others may see the owner of a connection a moment before it is in use here. */
  async function soon<End>(find: () => End | undefined): Promise<End | undefined> {
    for (let tries = 0; tries < COMING_TRIES && !find(); tries++)
      await clock.sleep(COMING_PAUSE_MS);
    return find();
  }

  async function route(message: Doorbell): Promise<Destination> {
    const to = await instanceOf(hot, message, instanceId);
    if (to !== undefined) return { to };
    // A session that comes back finds its results in its set; a node that comes back says what it runs.
    if (message.kind === "job.result" || message.kind === "job.cancel") return "gone";
    if (message.kind !== "job.assign") return "wait";
    const [now] = await readAttempts(hot, [{ jobId: message.job_id }]);
    const isOver = now?.attemptId !== message.attempt_id || now.state !== "DISPATCHED";
    return isOver ? "gone" : "wait";
  }

  return { receive, route };
}
