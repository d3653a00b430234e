import type { ServerToSession } from "@tenure/protocol";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { JobChecks } from "./checks.ts";
import type { Scheduler } from "./scheduler.ts";

export interface Client {
  connect(): void;
  submit(): void;
  disconnect(): void;
  calm(): void;
  /** Requests without a result. */
  open(): string[];
  /** Connected, and has acknowledged everything. */
  readonly isConnected: boolean;
}

const AGAIN_MS = 5_000;

/** A session as the SDK keeps it: what was not answered is submitted again, under the same request id. */
export function createClient({
  sessionId,
  timeline,
  chance,
  schedulers,
  checks,
  owner,
  nextEpoch,
}: {
  sessionId: string;
  timeline: Timeline;
  chance: Chance;
  schedulers: () => readonly Scheduler[];
  checks: JobChecks;
  owner: {
    claim(scheduler: Scheduler, sessionId: string, epoch: number): Promise<unknown>;
    drop(scheduler: Scheduler, sessionId: string, epoch: number): Promise<unknown>;
  };
  nextEpoch: () => number;
}): Client {
  const open = new Map<string, { jobId: string | undefined; turn: boolean }>();
  let isCalm = false;
  let made = 0;
  let line: Line | undefined;

  interface Line {
    scheduler: Scheduler;
    end: {
      sessionId: string;
      tenant: string;
      epoch: number;
      link: {
        send(message: ServerToSession): void;
        sendText(text: string): void;
        unsentBytes(): number;
        whenDrained(): void;
      };
    };
    isReady: boolean;
  }

  function carry(mine: Line, arrive: () => void): void {
    if (!isCalm && chance.isTrue(0.01)) {
      timeline.after(0, () => line === mine && drop());
      return;
    }
    timeline.after(chance.between(0.5, 10), () => line === mine && arrive());
  }

  async function begin(): Promise<void> {
    const alive = schedulers().filter(({ isAlive }) => isAlive);
    if (line || alive.length === 0) return;
    const scheduler = chance.oneOf(alive);
    const epoch = nextEpoch();
    const mine: Line = {
      scheduler,
      end: {
        sessionId,
        tenant: "default",
        epoch,
        link: {
          send: (message) => carry(mine, () => hear(mine, message)),
          sendText: (text) => carry(mine, () => hear(mine, JSON.parse(text) as ServerToSession)),
          unsentBytes: () => 0,
          whenDrained: () => {},
        },
      },
      isReady: false,
    };
    line = mine;
    await owner.claim(scheduler, sessionId, epoch).catch(() => {});
    if (line !== mine) return;
    mine.isReady = true;
    scheduler.jobs.sessions.joined(mine.end, { turnPauseMs: undefined }).catch(() => {});
    for (const requestId of open.keys()) say(requestId);
  }

  function say(requestId: string): void {
    const mine = line;
    if (!mine?.isReady) return;
    const turn = open.get(requestId)?.turn ?? false;
    const message = {
      type: "job_submit",
      request_id: requestId,
      pool: "p",
      payload: { text: "1", isCompact: true },
      turn,
    } as const;
    carry(mine, () => mine.scheduler.jobs.sessions.submit(mine.end, message));
  }

  function hear(mine: Line, message: ServerToSession): void {
    switch (message.type) {
      case "job_accepted": {
        checks.accepted(message.request_id, message.job_id);
        const request = open.get(message.request_id);
        if (request) request.jobId = message.job_id;
        break;
      }
      case "job_result": {
        const { job_id } = message;
        checks.told(message);
        open.delete(message.request_id);
        carry(mine, () => mine.scheduler.jobs.sessions.resultAcked(mine.end, job_id));
        break;
      }
    }
  }

  function drop(): void {
    const mine = line;
    line = undefined;
    if (!mine?.isReady || !mine.scheduler.isAlive) return;
    timeline.after(chance.between(1, 3_000), () => {
      void owner.drop(mine.scheduler, sessionId, mine.end.epoch).catch(() => {});
      void mine.scheduler.jobs.sessions.left(mine.end).catch(() => {});
    });
  }

  function watch(): void {
    if (line && !line.scheduler.isAlive) line = undefined;
    if (!line) void begin();
    timeline.after(chance.between(200, 1_500), watch);
  }

  function askAgain(): void {
    for (const requestId of open.keys()) say(requestId);
    timeline.after(AGAIN_MS, askAgain);
  }

  function cancel(requestId: string): void {
    const mine = line;
    const jobId = open.get(requestId)?.jobId;
    if (mine?.isReady && jobId)
      carry(mine, () => void mine.scheduler.jobs.sessions.cancel(mine.end, jobId));
  }

  return {
    connect() {
      watch();
      askAgain();
    },
    submit() {
      const requestId = `${sessionId}-${++made}`;
      open.set(requestId, { jobId: undefined, turn: chance.isTrue(0.3) });
      say(requestId);
      if (!isCalm && chance.isTrue(0.1))
        timeline.after(chance.between(10, 4_000), () => cancel(requestId));
    },
    disconnect: drop,
    calm() {
      isCalm = true;
    },
    open: () => [...open.keys()],
    get isConnected() {
      return line?.isReady ?? false;
    },
  };
}
