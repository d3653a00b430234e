import { JOB_OUTCOMES, type NodeView, type Stats, type StatsPoint } from "@tenure/protocol";
import type { Registry } from "prom-client";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import { every, type Service } from "../kernel/service.ts";
import { type Bucket, between, quantile } from "./quantile.ts";
import { readBuckets, readSums } from "./registry-reader.ts";

export interface StatsOptions {
  instanceId: string;
  registry: Registry;
  clock: Clock;
  log: Log;
  nodes: (scope: Scope) => NodeView[];
  /** Node-units that are known and not present. */
  away: (scope: Scope) => Promise<number>;
  deployments: (scope: Scope) => Promise<Stats["deployments"]>;
  /** Dead letters of all instances. */
  letters: () => Promise<number>;
  /** Jobs and sessions of these tenants at this instance. */
  open: (tenants: readonly string[]) => { waiting: number; running: number; sessions: number };
  /** Who would hear of it: the counts cost a statement for each. */
  followers: () => Scope[];
  publish: (scope: Scope, stats: Stats) => void;
}

export interface StatsKeeper extends Service {
  read(scope: Scope): Promise<Stats>;
}

const INTERVAL_MS = 5_000;
/** A quarter of an hour. */
const POINTS_MAX = 180;

/** The numbers of the overview: what is now, and the last minutes in steps, kept in this process alone. */
export function createStats(options: StatsOptions): StatsKeeper {
  const { instanceId, registry, clock, log, nodes } = options;
  const points: StatsPoint[] = [];
  let last: Sample | undefined;
  const underWay = new Map<string, Promise<Stats>>();

  async function step(): Promise<void> {
    const sample = await readSample(registry);
    if (last) points.push(pointOf(last, sample, { at: now(), nodes: nodes(EVERYTHING) }));
    if (points.length > POINTS_MAX) points.shift();
    last = sample;
    for (const scope of options.followers()) {
      const stats = await read(scope);
      options.publish(scope, { ...stats, points: stats.points.slice(-1) });
    }
  }

  async function gather(scope: Scope): Promise<Stats> {
    const [deployments, away, letters, figures] = await Promise.all([
      options.deployments(scope),
      options.away(scope),
      scope.operates ? options.letters() : 0,
      scope.operates ? readFigures(registry) : figuresOf(options.open(scope.tenants)),
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
      // They are counted for the whole instance only.
      points: scope.operates ? [...points] : [],
    };
  }

  /** A crowd of consoles is one question to the stores. */
  function read(scope: Scope): Promise<Stats> {
    const key = `${scope.operates} ${scope.tenants.join(" ")}`;
    const gathering = underWay.get(key) ?? gather(scope).finally(() => void underWay.delete(key));
    underWay.set(key, gathering);
    return gathering;
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

/** What is known of one tenant. Outcomes and numbers of signers are counted for all tenants together, and not shown. */
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
