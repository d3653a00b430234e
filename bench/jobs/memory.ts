import { startServer } from "@tenure/testing/fleet/running-server";
import { scratchDirectory } from "@tenure/testing/scratch";
import type { Bench } from "../bench.ts";
import { createStage, submitterOn, workerOn } from "./processes.ts";

const JOBS = 1_000_000;
const PARTS = 10;
const AT_ONCE = 128;
/**
 * Ended jobs are kept for the retention, and their request ids for as long as all attempts might have taken: 37 s with these.
 * So long, and no longer, memory may grow; with the defaults it would be nine minutes, which is longer than the bench.
 */
const SETTINGS = {
  TENURE_JOBS_RETENTION_SECONDS: "5",
  TENURE_JOB_TIMEOUT_PENDING_TIMEOUT_SECONDS: "2",
  TENURE_JOB_TIMEOUT_ACK_TIMEOUT_SECONDS: "2",
  TENURE_JOB_TIMEOUT_RUN_TIMEOUT_SECONDS: "2",
};
const GROWTH_MAX = 1.25;

export const jobsMemory: Bench = {
  name: "jobs-memory",
  summary: "what a server in memory mode weighs while a million jobs pass through it",
  async run({ print }) {
    const stage = createStage();
    try {
      const dataDir = scratchDirectory("bench-jobs");
      const server = await stage.keep(startServer({ env: SETTINGS, dataDir }));
      const { drive } = await stage.startPair(submitterOn(server), workerOn(server));
      const residentMb: number[] = [];
      for (let part = 0; part < PARTS; part++) {
        const { perSecond } = await drive({ kind: "count", atOnce: AT_ONCE, jobs: JOBS / PARTS });
        residentMb.push(Math.round(server.rssMb()));
        print(
          `after ${((part + 1) * JOBS) / PARTS} jobs: ${residentMb.at(-1)} MB, ${perSecond.toFixed(0)}/s`,
        );
      }
      // The first part also brings the code into memory, and what is kept to its full number.
      const growth = residentMb.at(-1)! / residentMb[1]!;
      const verdict = growth <= GROWTH_MAX ? "met" : "MISSED";
      print(`last to second ${growth.toFixed(2)} ×; ≤ ${GROWTH_MAX} × ${verdict}`);
    } finally {
      await stage.stop();
    }
  },
};
