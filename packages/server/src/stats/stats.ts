import { JOB_OUTCOMES, type NodeView, type Stats, type StatsPoint } from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import { every, type Service } from "../kernel/service.ts";
import { createSingleFlight } from "../kernel/single-flight.ts";
import type { Telemetry } from "../telemetry.ts";
import { readBuckets, readSums, readValue } from "./metric-reader.ts";
import { type Bucket, between, quantile } from "./quantile.ts";

export interface StatsOptions {
  instanceId: string;
  telemetry: StatsMetrics;
  clock: Clock;
  log: Log;
  nodes: (scope: Scope) => NodeView[];
  /** Counts the node-units that are known and not connected. */
  away: (scope: Scope) => Promise<number>;
  deployments: (scope: Scope) => Promise<Stats["deployments"]>;
  /** Counts the dead letters of all instances. */
  letters: () => Promise<number>;
  /** Jobs and sessions of these tenants on this instance. */
  open: (tenants: readonly string[]) => { waiting: number; running: number; sessions: number };
  /** The scopes with a follower: the counts cost a statement for each. */
  followers: () => Scope[];
  publish: (scope: Scope, stats: Stats) => void;
}

/** The metrics the overview is read from. */
export type StatsMetrics = Pick<
  Telemetry,
  | "jobsFinished"
  | "jobDispatchSeconds"
  | "jobsWaiting"
  | "jobsLive"
  | "deploymentClaims"
  | "deploymentsReleased"
  | "leaseAcquired"
  | "nonceHolds"
  | "sockets"
>;

export interface StatsKeeper extends Service {
  read(scope: Scope): Promise<Stats>;
}

const INTERVAL_MS = 5_000;
/** A quarter of an hour. */
const POINTS_MAX = 180;

/** Keeps the numbers of the overview: the present, and the last minutes in intervals, in this process only. */
export function createStats(options: StatsOptions): StatsKeeper {
  const { instanceId, telemetry, clock, log, nodes } = options;
  const points: StatsPoint[] = [];
  let last: Sample | undefined;
  const share = createSingleFlight<Stats>();

  async function step(): Promise<void> {
    const sample = await readSample(telemetry);
    if (last) points.push(pointOf(last, sample, { at: now(), nodes: nodes(EVERYTHING) }));
    if (points.length > POINTS_MAX) points.shift();
    last = sample;
    for (const scope of options.followers()) {
      const stats = await read(scope);
      options.publish(scope, { ...stats, points: stats.points.slice(-1) });
    }
  }

  async function collect(scope: Scope): Promise<Stats> {
    const [deployments, away, letters, figures] = await Promise.all([
      options.deployments(scope),
      options.away(scope),
      scope.operates ? options.letters() : 0,
      scope.operates ? readFigures(telemetry) : figuresOf(options.open(scope.tenants)),
    ]);
    const views = nodes(scope);
    return {
      at: now(),
      instance_id: instanceId,
      nodes: {
        online: views.filter((node) => node.online).length,
        draining: views.filter((node) => node.online && node.draining).length,
        away,
      },
      deployments,
      slots: slotsOf(views),
      dlq: { entries: letters },
      ...figures,
      interval_ms: INTERVAL_MS,
      // Points are counted for the whole instance only.
      points: scope.operates ? [...points] : [],
    };
  }

  /** Consoles that read at the same time share one query of the stores. */
  const read = (scope: Scope): Promise<Stats> =>
    share(`${scope.operates} ${scope.tenants.join(" ")}`, () => collect(scope));

  const now = (): string => new Date(clock.wallMs()).toISOString();
  const loop = every(INTERVAL_MS, step, {
    clock,
    onError: (error) =>
      log.warn({ event: "stats.not-told", error }, "could not collect the stats; will retry"),
  });
  return { read, start: loop.start, stop: loop.stop };
}

/** The values of counters at one moment. */
interface Sample {
  ended: Record<string, number>;
  dispatch: Bucket[];
  claimed: number;
  released: number;
  leasesTakenOver: number;
}

async function readSample(telemetry: StatsMetrics): Promise<Sample> {
  const claims = await readSums(telemetry.deploymentClaims, "result");
  const leases = await readSums(telemetry.leaseAcquired, "result");
  return {
    ended: await readSums(telemetry.jobsFinished, "outcome"),
    dispatch: await readBuckets(telemetry.jobDispatchSeconds),
    claimed: claims.claimed ?? 0,
    released: await readValue(telemetry.deploymentsReleased),
    leasesTakenOver: leases.taken_over ?? 0,
  };
}

function pointOf(
  before: Sample,
  after: Sample,
  { at, nodes }: { at: string; nodes: NodeView[] },
): StatsPoint {
  const ended = JOB_OUTCOMES.map(
    (outcome) => [outcome, (after.ended[outcome] ?? 0) - (before.ended[outcome] ?? 0)] as const,
  );
  const dispatched = between(before.dispatch, after.dispatch);
  const p50 = quantile(dispatched, 0.5);
  const p99 = quantile(dispatched, 0.99);
  return {
    at,
    ended: Object.fromEntries(ended.filter(([, count]) => count > 0)),
    dispatch_ms:
      p50 === undefined || p99 === undefined ? null : { p50: p50 * 1_000, p99: p99 * 1_000 },
    slots: slotsOf(nodes),
    claimed: after.claimed - before.claimed,
    released: after.released - before.released,
    leases_taken_over: after.leasesTakenOver - before.leasesTakenOver,
  };
}

/** The figures of one tenant. Outcomes and nonces are counted for all tenants together, and not shown. */
function figuresOf({
  waiting,
  running,
  sessions,
}: ReturnType<StatsOptions["open"]>): Pick<Stats, "jobs" | "sessions" | "signers"> {
  const none = Object.fromEntries(JOB_OUTCOMES.map((outcome) => [outcome, 0]));
  return {
    jobs: { waiting, running, ended: none as Stats["jobs"]["ended"] },
    sessions: { online: sessions },
    signers: { held: 0, released: 0, quarantined: 0 },
  };
}

/** The figures of the whole instance, from its metrics. */
async function readFigures(
  telemetry: StatsMetrics,
): Promise<Pick<Stats, "jobs" | "sessions" | "signers">> {
  const ended = await readSums(telemetry.jobsFinished, "outcome");
  const waiting = await readValue(telemetry.jobsWaiting);
  const live = await readValue(telemetry.jobsLive);
  const sockets = await readSums(telemetry.sockets, "kind");
  const holds = await readSums(telemetry.nonceHolds, "status");
  return {
    jobs: {
      waiting,
      running: Math.max(0, live - waiting),
      ended: Object.fromEntries(
        JOB_OUTCOMES.map((outcome) => [outcome, ended[outcome] ?? 0]),
      ) as Stats["jobs"]["ended"],
    },
    sessions: { online: sockets.session ?? 0 },
    signers: {
      held: holds.HELD ?? 0,
      released: holds.RELEASED ?? 0,
      quarantined: holds.QUARANTINED ?? 0,
    },
  };
}

function slotsOf(nodes: NodeView[]): Stats["slots"] {
  const online = nodes.filter((node) => node.online);
  return {
    capacity: online.reduce((sum, node) => sum + node.capacity, 0),
    reserved: online.reduce((sum, node) => sum + node.reserved, 0),
  };
}
