import type * as jobs from "../../../packages/server/src/jobs/jobs.ts";
import type * as memoryJob from "../../../packages/server/src/jobs/store/memory-job.ts";
import type * as owners from "../../../packages/server/src/membership/store/owner-store.ts";
import type * as memory from "../../../packages/server/src/store/memory.ts";

/** The server's own code that is simulated: its sources in a test, its build on the command line. */
export interface ServerParts {
  createJobs: typeof jobs.createJobs;
  openMemory: typeof memory.openMemory;
  claimOwner: typeof owners.claimOwner;
  dropOwner: typeof owners.dropOwner;
  ownerKeys: typeof owners.ownerKeys;
  jobIn: typeof memoryJob.jobIn;
}
