import { serves } from "@tenure/protocol";
import type { Destination, Received } from "../../delivery/contract.ts";
import type { Doorbell } from "../../delivery/doorbell.ts";
import { instanceOf } from "../../membership/owner-lookup.ts";
import type { JobsParts } from "../parts.ts";
import { readAttempts } from "../store/job-store.ts";
import type { Adoption } from "./adoption.ts";
import { sendAssign } from "./node-messages.ts";
import type { ResultDelivery } from "./result-delivery.ts";
import type { Next } from "./step.ts";

/** Handles messages of other instances about jobs. A message only points to the record; the record decides. */
export interface PeerMessages {
  receive(message: Doorbell): Promise<Received>;
  /** The instance a message should go to now. */
  route(message: Doorbell): Promise<Destination>;
}

const CONNECTING_TRIES = 10;
const CONNECTING_PAUSE_MS = 20;

export function createPeerMessages(
  parts: Pick<JobsParts, "hot" | "instanceId" | "clock" | "connections" | "tracked">,
  { results, adopt }: { results: ResultDelivery; adopt: Adoption["adopt"] },
  next: Next,
): PeerMessages {
  const { hot, instanceId, clock, connections, tracked } = parts;

  async function receive(message: Doorbell): Promise<Received> {
    switch (message.kind) {
      case "job.assign":
        return assign(message);
      case "job.cancel":
        return cancel(message);
      case "job.result":
        return result(message);
      case "job.ended":
        await results.endedElsewhere(message.job_id);
        return "done";
      default:
        return "retry"; // of a newer release: an instance that knows the kind may adopt it
    }
  }

  async function assign({ job_id, attempt_id, node_id = "" }: Doorbell): Promise<Received> {
    const node = await soon(() => connections.node(node_id));
    const owner = node ? instanceId : await instanceOf(hot, { node_id }, instanceId);
    if (owner !== undefined && owner !== instanceId) return "elsewhere";
    const job = await adopt(job_id, { attemptId: attempt_id, nodeId: node_id }, node);
    if (job?.state !== "DISPATCHED") return "superseded";
    // An instance of 0.1.0 knows no tenants of nodes.
    if (node && !serves(node.snapshot?.tenants, job.tenant)) {
      const detail = "its node does not serve this tenant";
      await next({ do: "retry", job, reason: "node_draining", detail });
      return "superseded";
    }
    if (!node) {
      // The node left a moment before; its disconnect handler did not know of this job yet.
      const detail = "it was gone before the job came";
      await next({ do: "retry", job, reason: "node_lost", detail });
      return "superseded";
    }
    return (await sendAssign(parts, node, job)) ? "done" : "superseded";
  }

  async function cancel({ job_id, attempt_id, node_id = "", reason }: Doorbell): Promise<Received> {
    const node = connections.node(node_id);
    if (!node) return "elsewhere";
    const job = tracked.get(job_id);
    if (job?.attemptId === attempt_id && job.nodeId === node_id) tracked.release(job);
    const text = typeof reason === "string" ? reason : "over";
    node.link.send({ type: "job_cancel", job_id, attempt_id, reason: text });
    return "done";
  }

  async function result({ job_id, session_id = "" }: Doorbell): Promise<Received> {
    const session = await soon(() => connections.session(session_id));
    if (!session) return "elsewhere";
    return (await results.bring(session, job_id)) === "sent" ? "done" : "superseded";
  }

  /** Other instances may see the owner of a connection a moment before it is in use here. */
  async function soon<Connection>(
    find: () => Connection | undefined,
  ): Promise<Connection | undefined> {
    for (let tries = 0; tries < CONNECTING_TRIES && !find(); tries++)
      await clock.sleep(CONNECTING_PAUSE_MS);
    return find();
  }

  async function route(message: Doorbell): Promise<Destination> {
    const to = await instanceOf(hot, message, instanceId);
    if (to !== undefined) return { to };
    // A session that reconnects finds its results in its set; a node that reconnects names the attempts it runs.
    if (message.kind === "job.result" || message.kind === "job.cancel") return "gone";
    if (message.kind !== "job.assign") return "wait";
    const [now] = await readAttempts(hot, [{ jobId: message.job_id }]);
    const isOver = now?.attemptId !== message.attempt_id || now.state !== "DISPATCHED";
    return isOver ? "gone" : "wait";
  }

  return { receive, route };
}
