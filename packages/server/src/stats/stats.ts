import { JOB_OUTCOMES, type NodeView, type Stats, type StatsPoint } from "@tenure/protocol";
import type { Registry } from "prom-client";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import { type Bucket, between, quantile } from "./quantile.ts";
import { readBuckets, readSums } from "./registry-reader.ts";

export interface StatsOptions {
  instanceId: string;
  registry: Registry;
  clock: Clock;
  log: Log;
  nodes: () => NodeView[];
  /** Node-units that are known and not present. */
  away: () => Promise<number>;
  deployments: () => Promise<Stats["deployments"]>;
  /** Dead letters of all instances. */
  letters: () => Promise<number>;
  /** Whether anybody would hear of it: the counts cost a statement. */
  isFollowed: () => boolean;
  publish: (stats: Stats) => void;
}

export interface StatsKeeper extends Service {
  read(): Promise<Stats>;
}

const INTERVAL_MS = 5_000;
/** A quarter of an hour. */
const POINTS_MAX = 180;

/** The numbers of the overview: what is now, and the last minutes in steps, kept in this process alone. */
export function createStats(options: StatsOptions): StatsKeeper {
  const { instanceId, registry, clock, log, nodes } = options;
  const points: StatsPoint[] = [];
  let last: Sample | undefined;
  let underWay: Promise<Stats> | undefined;

  async function step(): Promise<void> {
    const sample = await readSample(registry);
    if (last) points.push(pointOf(last, sample, { at: now(), nodes: nodes() }));
    if (points.length > POINTS_MAX) points.shift();
    last = sample;
    if (last && options.isFollowed()) {
      const stats = await read();
      options.publish({ ...stats, points: stats.points.slice(-1) });
    }
  }

  async function gather(): Promise<Stats> {
    const [deployments, away, letters, figures] = await Promise.all([
      options.deployments(),
      options.away(),
      options.letters(),
      readFigures(registry),
    ]);
    const views = nodes();
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
      points: [...points],
    };
  }

  /** A crowd of consoles is one question to the stores. */
  function read(): Promise<Stats> {
    underWay ??= gather().finally(() => {
      underWay = undefined;
    });
    return underWay;
  }

  const now = (): string => new Date(clock.wallMs()).toISOString();
  const loop = every(INTERVAL_MS, step, {
    clock,
    onError: (error) => log.warn({ event: "stats.not-told", error }, "the overview is late"),
  });
  return { read, start: loop.start, stop: loop.stop };
}

/** What only rises, at one moment. */
interface Sample {
  ended: Record<string, number>;
  dispatch: Bucket[];
  claimed: number;
  released: number;
  leasesTakenOver: number;
}

async function readSample(registry: Registry): Promise<Sample> {
  const claims = await readSums(registry, "tenure_deployment_claims_total", "result");
  const released = await readSums(registry, "tenure_deployment_released_total");
  const leases = await readSums(registry, "tenure_lease_acquired_total", "result");
  return {
    ended: await readSums(registry, "tenure_job_finished_total", "outcome"),
    dispatch: await readBuckets(registry, "tenure_job_dispatch_seconds"),
    claimed: claims.claimed ?? 0,
    released: released[""] ?? 0,
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

/** What the metrics know of the present. */
async function readFigures(
  registry: Registry,
): Promise<Pick<Stats, "jobs" | "sessions" | "signers">> {
  const ended = await readSums(registry, "tenure_job_finished_total", "outcome");
  const { "": waiting = 0 } = await readSums(registry, "tenure_job_waiting");
  const { "": live = 0 } = await readSums(registry, "tenure_job_live");
  const sockets = await readSums(registry, "tenure_sockets", "kind");
  const holds = await readSums(registry, "tenure_nonce_holds", "status");
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
