import type { NodeView, ServerToNode } from "@tenure/protocol";
import type { NodeReport } from "../../../packages/server/src/jobs/flow/report-batch.ts";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { JobChecks } from "./checks.ts";
import type { Scheduler } from "./scheduler.ts";

type Result = Extract<NodeReport, { type: "job_result" }>;
type Assign = Extract<ServerToNode, { type: "job_assign" }>;

export interface Worker {
  readonly nodeId: string;
  readonly capacity: number;
  /** As membership shows it to every instance; `undefined` while nobody is connected. */
  view(): NodeView | undefined;
  connect(): void;
  /** kill -9: what it ran and what it had not delivered is gone with it. */
  crash(): void;
  /** Its connection breaks; it goes on with its work. */
  disconnect(): void;
  /** From now on it does what it gets, at once and well. */
  calm(): void;
}

interface Work {
  jobId: string;
  attemptId: number;
  said: "job_ack" | "job_started" | undefined;
}

/** A node that runs jobs as the SDK's worker does: an outbox until its result is acknowledged, heartbeats, cancel. */
export function createWorker({
  nodeId,
  capacity,
  timeline,
  chance,
  schedulers,
  checks,
  owner,
  nextEpoch,
  heartbeatMs,
}: {
  nodeId: string;
  capacity: number;
  timeline: Timeline;
  chance: Chance;
  schedulers: () => readonly Scheduler[];
  checks: JobChecks;
  owner: {
    claim(scheduler: Scheduler, nodeId: string, epoch: number): Promise<unknown>;
    drop(scheduler: Scheduler, nodeId: string, epoch: number): Promise<unknown>;
  };
  nextEpoch: () => number;
  heartbeatMs: number;
}): Worker {
  let boots = 0;
  let isCalm = false;
  let running = new Map<string, Work>();
  let outbox = new Map<string, Result>();
  let line: Line | undefined;

  interface Line {
    scheduler: Scheduler;
    end: {
      nodeId: string;
      epoch: number;
      link: { send(message: ServerToNode): void; sendText(text: string): void };
    };
    isReady: boolean;
  }

  const attempts = () =>
    [...running.values()].map(({ jobId, attemptId }) => ({ jobId, attemptId }));

  /** Late, twice, or after what was said later. What is lost is lost with everything after it, as on a socket. */
  function carry(mine: Line, arrive: () => void): void {
    if (!isCalm && chance.isTrue(0.01)) {
      timeline.after(0, () => line === mine && drop(false));
      return;
    }
    const copies = !isCalm && chance.isTrue(0.03) ? 2 : 1;
    for (let copy = 0; copy < copies; copy++) {
      const delayMs = !isCalm && chance.isTrue(0.03) ? 1_500 : 10;
      timeline.after(chance.between(0.5, delayMs), () => line === mine && arrive());
    }
  }

  async function open(): Promise<void> {
    const alive = schedulers().filter(({ isAlive }) => isAlive);
    if (line || alive.length === 0) return;
    const scheduler = chance.oneOf(alive);
    const epoch = nextEpoch();
    const mine: Line = {
      scheduler,
      end: {
        nodeId,
        epoch,
        link: {
          send: (message) => carry(mine, () => hear(mine, message)),
          sendText: (text) => carry(mine, () => hear(mine, JSON.parse(text) as ServerToNode)),
        },
      },
      isReady: false,
    };
    line = mine;
    const { jobs } = scheduler;
    await jobs.nodes.registering({ nodeId, capacity, running: attempts() }).catch(() => {});
    await owner.claim(scheduler, nodeId, epoch).catch(() => {});
    if (line !== mine) return;
    mine.isReady = true;
    jobs.nodes.joined(mine.end, attempts()).catch(() => {});
    for (const result of outbox.values()) say(result);
    beat(mine);
  }

  function beat(mine: Line): void {
    if (line !== mine) return;
    const beaten = { running: attempts(), capacity, draining: false };
    carry(mine, () => void mine.scheduler.jobs.nodes.heartbeat(mine.end, beaten).catch(() => {}));
    for (const result of outbox.values()) say(result);
    timeline.after(heartbeatMs, () => beat(mine));
  }

  function say(report: NodeReport): void {
    const mine = line;
    if (mine?.isReady) carry(mine, () => mine.scheduler.jobs.nodes.reported(mine.end, report));
  }

  function hear(mine: Line, message: ServerToNode): void {
    if (line !== mine) return;
    switch (message.type) {
      case "job_assign":
        checks.assigned(nodeId, message);
        assigned(message);
        break;
      case "job_cancel":
        running.delete(nameOf(message));
        break;
      case "job_result_ack":
        checks.acked(nodeId, message);
        outbox.delete(nameOf(message));
        break;
    }
  }

  function assigned(message: Assign): void {
    const name = nameOf(message);
    const known = running.get(name);
    const about = { job_id: message.job_id, attempt_id: message.attempt_id };
    const result = outbox.get(name);
    if (result) say(result);
    if (known?.said) say({ type: known.said, ...about });
    if (result || known) return;
    const work: Work = { jobId: message.job_id, attemptId: message.attempt_id, said: undefined };
    running.set(name, work);
    const boot = boots;
    const then = (ms: number, act: () => void) =>
      timeline.after(ms, () => boots === boot && running.get(name) === work && act());
    // Somebody who never answers, and somebody who never ends: their deadlines must.
    if (!isCalm && chance.isTrue(0.05)) return;
    then(chance.between(1, 100), () => {
      work.said = "job_ack";
      say({ type: "job_ack", ...about });
    });
    then(chance.between(100, 200), () => {
      work.said = "job_started";
      say({ type: "job_started", ...about });
    });
    if (!isCalm && chance.isTrue(0.05)) return;
    then(chance.between(200, isCalm || chance.isTrue(0.7) ? 1_000 : 9_000), () => finish(work));
  }

  function finish({ jobId, attemptId }: Work): void {
    const about = { job_id: jobId, attempt_id: attemptId };
    running.delete(nameOf(about));
    const success = isCalm || chance.isTrue(0.8);
    const retryable = chance.isTrue(0.7);
    const result: Result = success
      ? {
          type: "job_result",
          ...about,
          success,
          body: { text: `"${nodeId}:${attemptId}"`, isCompact: true },
        }
      : { type: "job_result", ...about, success, error: { code: "X", message: "x", retryable } };
    outbox.set(nameOf(about), result);
    say(result);
  }

  function drop(isCrash: boolean): void {
    const mine = line;
    line = undefined;
    if (!mine?.isReady || !mine.scheduler.isAlive) return;
    // The instance hears of it a moment later: by then it may be connected elsewhere, and then nobody left.
    timeline.after(chance.between(1, isCrash ? 300 : 3_000), () => {
      const isLeave = !line || line.end.epoch <= mine.end.epoch;
      void owner.drop(mine.scheduler, nodeId, mine.end.epoch).catch(() => {});
      void mine.scheduler.jobs.nodes.left(mine.end, { isLeave, abruptly: true }).catch(() => {});
    });
  }

  function watch(): void {
    if (line && !line.scheduler.isAlive) line = undefined;
    if (!line) void open();
    timeline.after(chance.between(200, 1_500), watch);
  }

  return {
    nodeId,
    capacity,
    view: () =>
      line?.isReady && line.scheduler.isAlive ? viewOf({ nodeId, capacity }, line) : undefined,
    connect: watch,
    crash() {
      boots += 1;
      running = new Map();
      outbox = new Map();
      drop(true);
    },
    disconnect: () => drop(false),
    calm() {
      isCalm = true;
    },
  };
}

const nameOf = ({ job_id, attempt_id }: { job_id: string; attempt_id: number }): string =>
  `${job_id}:${attempt_id}`;

const viewOf = (
  { nodeId, capacity }: { nodeId: string; capacity: number },
  { scheduler, end }: { scheduler: Scheduler; end: { epoch: number } },
): NodeView => ({
  ...{ node_id: nodeId, name: nodeId, version: "1", online: true, draining: false },
  ...{ node_unit: false, instance_id: scheduler.id, boot_id: nodeId, epoch: end.epoch },
  ...{ tags: {}, labels: {}, pools: ["p"], services: [], capacity, reserved: 0 },
  ...{ claim_policy: "none", trusted_package_regexp: "", custom_command: false },
  ...{ resource_usage: null, joined_at: "2026-01-01T00:00:00.000Z", left_at: null },
  presence_expires_at: null,
});
