import { hash } from "node:crypto";

const dueKey = (prefix: string, shard: number): string => `${prefix}:v1:jobs:due:${shard}`;

/**
 * The keys of one job share a hash tag, as do those of one node and of one session: a script touches one of them, never two.
 * An instance may stop between any two scripts; the recovery index finds the jobs it left.
 */
export const jobKeys = {
  job: (prefix: string, jobId: string) => `${prefix}:v1:jobs:{job:${jobId}}`,
  fsm: (prefix: string, jobId: string) => `${prefix}:v1:jobs:{job:${jobId}}:fsm`,
  payload: (prefix: string, jobId: string) => `${prefix}:v1:jobs:{job:${jobId}}:payload`,
  result: (prefix: string, jobId: string) => `${prefix}:v1:jobs:{job:${jobId}}:result`,
  timeline: (prefix: string, jobId: string) => `${prefix}:v1:jobs:{job:${jobId}}:timeline`,
  due: dueKey,
  // In the slot of their shard of the recovery index, whose whole key is their tag.
  ended: (prefix: string, shard: number) => `${prefix}:v1:jobs:ended:{${dueKey(prefix, shard)}}`,
  bodies: (prefix: string, shard: number) => `${prefix}:v1:jobs:bodies:{${dueKey(prefix, shard)}}`,
  endedSweep: (prefix: string) => `${prefix}:v1:jobs:ended_sweep`,
  mark: (prefix: string, mark: number) => `${prefix}:v1:jobs:{mark:${mark}}`,
  recent: (prefix: string) => `${prefix}:v1:jobs:recent`,
  binding: (prefix: string, request: RequestName) =>
    `${prefix}:v1:requests:binding:${requestKey(request)}`,
  reserved: (prefix: string, nodeId: string) => `${prefix}:v1:nodes:{node:${nodeId}}:reserved`,
  unavailable: (prefix: string, nodeId: string) =>
    `${prefix}:v1:nodes:{node:${nodeId}}:unavailable`,
  reports: (prefix: string, nodeId: string) => `${prefix}:v1:nodes:{node:${nodeId}}:na_count`,
  notice: (prefix: string, service: string) =>
    `${prefix}:v1:services:{service:${service}}:na_notice`,
  waiting: (prefix: string, pool: string) => `${prefix}:v1:pools:{pool:${pool}}:waiting`,
  undelivered: (prefix: string, sessionId: string) =>
    `${prefix}:v1:sessions:{session:${sessionId}}:undelivered`,
};

export type JobKey = "fsm" | "payload" | "result" | "timeline";

export function keysOfJob(prefix: string, jobId: string): Record<JobKey, string> {
  const job = jobKeys.job(prefix, jobId);
  return {
    fsm: `${job}:fsm`,
    payload: `${job}:payload`,
    result: `${job}:result`,
    timeline: `${job}:timeline`,
  };
}

/** Request ids are unique within a tenant. */
export interface RequestName {
  tenant: string;
  requestId: string;
}

function requestKey({ tenant, requestId }: RequestName): string {
  return `${tenant}:${hash("sha256", requestId, "hex")}`;
}

export const RECOVERY_SHARDS = 64;

/**
 * The shard comes from the time in the id (UUID v7), not from a hash: jobs submitted in the same moment share a shard, so
 * that one command enters them all. Every shard is used once in two seconds.
 */
export function recoveryShard(jobId: string): number {
  const lowMs = Number.parseInt(jobId.slice(4, 8) + jobId.slice(9, 13), 16);
  return (lowMs >>> 5) & (RECOVERY_SHARDS - 1);
}
