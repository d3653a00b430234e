import type { Bench } from "./bench.ts";
import { deployments } from "./deployments.ts";
import { fleet } from "./fleet.ts";
import { footprint } from "./footprint.ts";
import { jobs } from "./jobs/jobs.ts";
import { jobsMemory } from "./jobs/memory.ts";
import { jobsPostgres } from "./jobs/postgres.ts";
import { nonces } from "./nonces.ts";

export const BENCHES: readonly Bench[] = [
  footprint,
  deployments,
  fleet,
  jobs,
  jobsPostgres,
  jobsMemory,
  nonces,
];
