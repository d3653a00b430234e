import type { Workload } from "./workload.ts";
import { claims } from "./workloads/claims.ts";
import { fence } from "./workloads/fence.ts";
import { inbox } from "./workloads/inbox.ts";
import { jobs } from "./workloads/jobs.ts";
import { members } from "./workloads/members.ts";
import { nonces } from "./workloads/nonces.ts";
import { processes } from "./workloads/processes.ts";
import { turns } from "./workloads/turns.ts";

export const WORKLOADS: readonly Workload[] = [
  nonces,
  fence,
  members,
  claims,
  inbox,
  processes,
  jobs,
  turns,
];
