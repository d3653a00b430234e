import type { HotStore } from "../../store/hot-store.ts";
import type { MemorySpace } from "../../store/memory-space.ts";
import { defineScript } from "../../store/script.ts";
import { split } from "./batches.ts";
import { jobKeys, keysOfJob } from "./keys.ts";
import { jobIn } from "./memory-job.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

/**
 * The number and size of ended jobs, without a list of them. Each shard of the recovery index has two keys in its own Cluster
 * slot: `ended` counts jobs by the second in which their records expire, in at most some seventy buckets, and those of each
 * tenant in some seventeen; `bodies` lists those whose result and timeline are still kept, oldest first, with their sizes.
 */

/** Bodies are counted in units, so that a size and a time fit into one score. The Lua files have the same numbers. */
export const UNIT_BYTES = 64;
const UNITS_MAX = 2 ** 20 - 1;
const SCORE_STEP = 2 ** 20;
const BUCKETS = 64;
const TENANT_BUCKETS = 16;
/** A result of at most so many bytes stays with the outcome when the other bodies go. */
const INLINE_BYTES_MAX = 128;
/** Handled in one call. */
const SWEPT_MAX = 1_000;

const endScript = defineScript<
  "due" | "ended" | "bodies",
  Record<"jobs" | "sizes" | "tenants" | "keep_ms" | "leave", string>,
  readonly ["counted", number]
>({
  file: new URL("./lua/end-due.lua", import.meta.url),
  keys: ["due", "ended", "bodies"],
  texts: ["jobs", "sizes", "tenants", "keep_ms", "leave"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, keys, { jobs, sizes, tenants, keep_ms, leave }) => {
  const keepMs = Number(keep_ms);
  const untilS = Math.ceil((space.nowMs() + keepMs) / 1_000);
  const bodies = space.scores(keys.bodies);
  const due = space.scores(keys.due);
  const sizeOf = split(sizes).map(Number);
  const tenantOf = split(tenants);
  const bucket = (buckets: number): string => {
    const bucketS = Math.max(1, Math.ceil(keepMs / 1_000 / buckets));
    return String(Math.ceil(untilS / bucketS) * bucketS);
  };
  let [count, units] = [0, 0];
  for (const [at, job] of split(jobs).entries()) {
    if (leave === "1") due.delete(job);
    const size = sizeOf[at]!;
    if (size === 0 || bodies.has(job)) continue;
    bodies.set(job, untilS * SCORE_STEP + size);
    count += 1;
    units += size;
    add(space, keys.ended, `${bucket(TENANT_BUCKETS)} ${tenantOf[at]}`, 1);
  }
  if (count === 0) return ["counted", 0];
  add(space, keys.ended, bucket(BUCKETS), count);
  add(space, keys.ended, "units", units);
  space.expire(keys.ended, keepMs * 2);
  space.expire(keys.bodies, keepMs * 2);
  return ["counted", count];
});

const sweepScript = defineScript<
  "ended" | "bodies",
  { count: number },
  readonly ["swept", number, number, number, ...(string | number)[]]
>({
  file: new URL("./lua/sweep-ended.lua", import.meta.url),
  keys: ["ended", "bodies"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, keys, { count }) => {
  if (!space.has(keys.ended)) return ["swept", 0, 0, -1];
  const nowS = Math.floor(space.nowMs() / 1_000);
  const bodies = space.scores(keys.bodies);
  let [units, gone] = [0, 0];
  // In the order of expiry.
  for (const [job, score] of bodies) {
    if (score >= (nowS + 1) * SCORE_STEP || gone === count) break;
    units += score % SCORE_STEP;
    gone += 1;
    bodies.delete(job);
  }
  if (units > 0) add(space, keys.ended, "units", -units);
  let [jobs, left, firstS] = [0, 0, Number.POSITIVE_INFINITY];
  const tenants = new Map<string, number>();
  const ended = space.hash(keys.ended);
  for (const [field, value] of ended) {
    const [second, tenant] = field.split(" ");
    if (field === "units") left = Number(value);
    else if (Number(second) <= nowS) ended.delete(field);
    else if (tenant) tenants.set(tenant, (tenants.get(tenant) ?? 0) + Number(value));
    else {
      jobs += Number(value);
      firstS = Math.min(firstS, Number(second));
    }
  }
  return [
    "swept",
    jobs,
    Math.max(0, left),
    firstS === Number.POSITIVE_INFINITY ? -1 : firstS - nowS,
    ...[...tenants].flat(),
  ];
});

const oldestScript = defineScript<
  "bodies",
  { units: number; count: number },
  readonly ["oldest", ...string[]]
>({
  file: new URL("./lua/oldest-bodies.lua", import.meta.url),
  keys: ["bodies"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, keys, { units, count }) => {
  const oldest: string[] = [];
  let sum = 0;
  if (space.has(keys.bodies))
    for (const [job, score] of space.scores(keys.bodies)) {
      if (sum >= units || oldest.length === count) break;
      sum += score % SCORE_STEP;
      oldest.push(job);
    }
  return ["oldest", ...oldest];
});

const forgetScript = defineScript<
  "ended" | "bodies",
  { jobs: string },
  readonly ["forgotten", number]
>({
  file: new URL("./lua/forget-bodies.lua", import.meta.url),
  keys: ["ended", "bodies"],
  texts: ["jobs"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, keys, { jobs }) => {
  const bodies = space.scores(keys.bodies);
  let [units, count] = [0, 0];
  for (const job of split(jobs)) {
    const score = bodies.get(job);
    if (score === undefined) continue;
    units += score % SCORE_STEP;
    count += 1;
    bodies.delete(job);
  }
  if (units > 0) add(space, keys.ended, "units", -units);
  return ["forgotten", count];
});

const dropScript = defineScript<
  "fsm" | "result" | "timeline",
  { inline_max: number },
  readonly ["dropped" | "open"]
>({
  file: new URL("./lua/drop-body.lua", import.meta.url),
  keys: ["fsm", "result", "timeline"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { fsm }, { inline_max }) => {
  const job = jobIn(space, fsm);
  if (!job) return ["dropped"];
  if (job.state !== "FINISHED" && job.state !== "RELEASED") return ["open"];
  if (job.result !== undefined && Buffer.byteLength(job.result) > inline_max)
    job.result = undefined;
  job.timeline = [];
  job.avoid = "";
  job.listeners = "";
  job.lastFailure = undefined;
  job.lastReason = undefined;
  return ["dropped"];
});

const leadScript = defineScript<
  "sweep",
  {
    instance: string;
    lease_ms: number;
    jobs: number;
    units: number;
    first_s: number;
    tenants: string;
  },
  readonly ["lead" | "follow", number, number, number, string]
>({
  file: new URL("./lua/lead-sweep.lua", import.meta.url),
  keys: ["sweep"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { sweep }, { instance, lease_ms, jobs, units, first_s, tenants }) => {
  const now = space.nowMs();
  const fields = space.hash(sweep);
  const figure = (name: string, absent: number) => Number(fields.get(name) ?? absent);
  const counted = [
    ...([figure("jobs", 0), figure("units", 0), figure("first_s", -1)] as const),
    fields.get("tenants") ?? "",
  ] as const;
  const leads = fields.get("by") === instance || figure("until_ms", 0) <= now;
  if (!leads) return ["follow", ...counted];
  fields.set("by", instance).set("until_ms", String(now + lease_ms));
  if (jobs >= 0) {
    fields.set("jobs", String(jobs)).set("units", String(units));
    fields.set("first_s", String(first_s)).set("tenants", tenants);
  }
  space.expire(sweep, lease_ms * 10);
  return ["lead", ...counted];
});

/** A job that has ended, and how many bytes its body takes; 0 for one whose body is gone. */
export interface EndedJob {
  jobId: string;
  tenant: string;
  bytes: number;
}

/** Counts ended jobs of one shard. `leaves`: they are done, and also leave the recovery index. */
export async function endDue(
  hot: HotStore,
  shard: number,
  jobs: readonly EndedJob[],
  { keepMs, leaves }: { keepMs: number; leaves: boolean },
): Promise<void> {
  const due = jobKeys.due(hot.prefix, shard);
  await hot.run(
    endScript,
    { due, ...shardKeys(hot, shard) },
    {
      jobs: jobs.map(({ jobId }) => jobId).join(" "),
      sizes: jobs.map(({ bytes }) => Math.min(UNITS_MAX, Math.ceil(bytes / UNIT_BYTES))).join(" "),
      tenants: jobs.map(({ tenant }) => tenant).join(" "),
      keep_ms: String(keepMs),
      leave: leaves ? "1" : "0",
    },
  );
}

/** Figures of the ended jobs that are kept. */
export interface EndedFigures {
  jobs: number;
  /** Of their bodies, in units of `UNIT_BYTES`. */
  units: number;
  /** Until the first of them expires; `undefined` if there is none. */
  firstInMs: number | undefined;
  /** Jobs by tenant. An expired one counts for some minutes more here than in `jobs`. */
  tenants: ReadonlyMap<string, number>;
}

export async function sweepEnded(hot: HotStore, shard: number): Promise<EndedFigures> {
  const swept = await hot.run(sweepScript, shardKeys(hot, shard), { count: SWEPT_MAX });
  const [, jobs, units, firstS, ...tenants] = swept;
  return figuresOf([jobs, units, firstS], tenants);
}

/** Drops the oldest bodies of one shard until `units` are gone. Returns how many jobs lost theirs. */
export async function dropOldestBodies(
  hot: HotStore,
  shard: number,
  units: number,
): Promise<number> {
  const { ended, bodies } = shardKeys(hot, shard);
  const [, ...jobIds] = await hot.run(oldestScript, { bodies }, { units, count: SWEPT_MAX });
  if (jobIds.length === 0) return 0;
  // Bodies first, then the list: if the instance stops in between, the next sweep continues.
  await Promise.all(jobIds.map((jobId) => dropBody(hot, jobId)));
  return (await hot.run(forgetScript, { ended, bodies }, { jobs: jobIds.join(" ") }))[1];
}

export async function dropBody(hot: HotStore, jobId: string): Promise<void> {
  const { fsm, result, timeline } = keysOfJob(hot.prefix, jobId);
  await hot.run(dropScript, { fsm, result, timeline }, { inline_max: INLINE_BYTES_MAX });
}

/** Acquires or renews the lease of the sweep. `counted`: the figures of its last sweep, for the others. */
export async function leadSweep(
  hot: HotStore,
  {
    instanceId,
    leaseMs,
    counted,
  }: { instanceId: string; leaseMs: number; counted: EndedFigures | undefined },
): Promise<{ leads: boolean; figures: EndedFigures }> {
  const [role, jobs, units, firstS, tenants] = await hot.run(
    leadScript,
    { sweep: jobKeys.endedSweep(hot.prefix) },
    {
      instance: instanceId,
      lease_ms: leaseMs,
      jobs: counted?.jobs ?? -1,
      units: counted?.units ?? 0,
      first_s: counted?.firstInMs === undefined ? -1 : Math.ceil(counted.firstInMs / 1_000),
      tenants: [...(counted?.tenants ?? [])].flat().join(" "),
    },
  );
  const figures = figuresOf([jobs, units, firstS], split(tenants));
  return { leads: role === "lead", figures };
}

/** `tenants`: a tenant, its jobs, another tenant, its jobs, and so on. */
function figuresOf(
  [jobs, units, firstS]: readonly [number, number, number],
  tenants: readonly (string | number)[],
): EndedFigures {
  const byTenant = new Map<string, number>();
  for (let at = 0; at + 1 < tenants.length; at += 2)
    byTenant.set(String(tenants[at]), Number(tenants[at + 1]));
  const firstInMs = firstS < 0 ? undefined : firstS * 1_000;
  return { jobs, units, firstInMs, tenants: byTenant };
}

const shardKeys = (hot: HotStore, shard: number) => ({
  ended: jobKeys.ended(hot.prefix, shard),
  bodies: jobKeys.bodies(hot.prefix, shard),
});

function add(space: MemorySpace, key: string, field: string, change: number): void {
  const fields = space.hash(key);
  fields.set(field, String(Number(fields.get(field) ?? 0) + change));
}
