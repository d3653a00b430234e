import { BaseSequencer, type TestSpecification } from "vitest/node";

// Files that mostly wait, for leases, failovers or installs. Without a cache of durations vitest starts the largest
// files first, and these small ones would run alone at the end.
const SLOW = [
  "jobs/turns/turns.test.ts",
  "nonces/restored-copy.test.ts",
  "store/redis-failover.test.ts",
  "simulation/scale/scale.test.ts",
  "simulation/claims/claims.test.ts",
  "simulation/jobs/jobs.test.ts",
  "e2e/dev.test.ts",
  "e2e/server.test.ts",
  "e2e/moving-clients.test.ts",
  "e2e/sdk-chromium.test.ts",
  "e2e/worker-blocking.test.ts",
  "console/faces.test.ts",
  "membership/forget.test.ts",
  "store/embedded/pglite-disk.test.ts",
  "attacks/data-dir.test.ts",
  "processes/process-registry.test.ts",
  "retention.test.ts",
  "stopped.test.ts",
  "lost-nodes.test.ts",
];

/** Starts the slow files first, so that the quick ones fill the time they wait. */
export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isSlow = ({ moduleId }: TestSpecification) => SLOW.some((end) => moduleId.endsWith(end));
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))];
  }
}
