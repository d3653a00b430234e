import { setTimeout as wait } from "node:timers/promises";
import { Session } from "@tenure/sdk";

const EVERY_MS = 500;
/** Long enough that a killed worker has running jobs, short enough for quick results. */
const WORK_MS = 300;

/** Counters of the sample session. */
export interface JobsSeen {
  sent: number;
  answered: number;
  failed: number;
  /** Succeeded after a retry, because the first worker was lost. */
  again: number;
  slowestMs: number;
}

export interface DemoJobs {
  seen(): Readonly<JobsSeen>;
  stop(): Promise<void>;
}

/** Starts a session that sends two jobs per second to the echo workers. */
export function startDemoJobs(options: { url: string; token?: string }): DemoJobs {
  const session = new Session(options);
  const stopping = new AbortController();
  const seen: JobsSeen = { sent: 0, answered: 0, failed: 0, again: 0, slowestMs: 0 };

  async function send(): Promise<void> {
    const sentMs = performance.now();
    seen.sent += 1;
    try {
      const say = `hello ${seen.sent}`;
      const { attempt_id } = await session.submit({
        pool: "echo",
        payload: { say, work_ms: WORK_MS },
      });
      seen.answered += 1;
      if (attempt_id > 1) seen.again += 1;
      seen.slowestMs = Math.max(seen.slowestMs, performance.now() - sentMs);
    } catch {
      if (!stopping.signal.aborted) seen.failed += 1;
    }
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      void send();
      await wait(EVERY_MS, undefined, { signal: stopping.signal, ref: false }).catch(() => {});
    }
  }

  void run();
  return {
    seen: () => seen,
    async stop() {
      stopping.abort();
      await session.close();
    },
  };
}
