import type { Bench } from "./bench.ts";
import { footprint } from "./footprint.ts";
import { jobs } from "./jobs.ts";
import { jobsMemory } from "./jobs-memory.ts";
import * as nonces from "./nonces.ts";

export const BENCHES: readonly Bench[] = [footprint, nonces, jobs, jobsMemory];
