import type { Actor } from "./actor.ts";
import { groupBy } from "./checkers/operations.ts";
import type { Card } from "./schedule.ts";
import type { Workload } from "./workload.ts";

/** What there is to disturb. */
export interface Targets {
  instances: number;
  /** Processes of the workloads, how many of each role, and which ways they have to stores. */
  parties: readonly PartyTargets[];
  /** Cluster nodes cannot have a proxy before them. */
  hot: "redis" | "redis-cluster";
  redisNodes: number;
  /** Whose wall clock can be moved. */
  clocks: readonly ("instance" | "postgres")[];
  hasPostgresDisk: boolean;
  /** Whether programs can come back in another version. */
  isMixed?: boolean;
  /** Cards of the dimension's own faults. */
  own?: readonly Card[];
}

export interface PartyTargets {
  role: string;
  count: number;
  lines: readonly string[];
  hasDisk: boolean;
  /** Faults of which nothing is promised. */
  spared: readonly string[];
  awayMaxMs: number;
  /** How many versions it can run as. */
  versions: number;
}

const DIRECTIONS = ["both", "up", "down"] as const;

/** Every fault that makes sense for these workloads, or those of them that `only` names. */
export function createDeck(
  targets: Targets,
  workloads: readonly Workload[],
  only: readonly string[] = [],
): Card[] {
  const { instances, parties, hot, redisNodes, clocks, hasPostgresDisk, own = [] } = targets;
  const instance = { role: "instance", count: instances };
  const redis = { role: "redis", count: redisNodes };
  const postgres = { role: "postgres", count: 1 };
  const cards: Card[] = [
    { ...instance, fault: "kill", lastsMs: [200, 4_000] },
    { ...instance, fault: "stop", lastsMs: [200, 2_000] },
    // Also longer than two missed pings: then its nodes are elsewhere when it wakes.
    { ...instance, fault: "freeze", lastsMs: [1_000, 18_000] },
    { ...instance, fault: "postgres-partition", lastsMs: [500, 9_000], variants: DIRECTIONS },
    { ...instance, fault: "postgres-delay", lastsMs: [1_000, 5_000], variants: ["50", "400"] },
    { ...instance, fault: "postgres-reset", lastsMs: [0, 0] },
    { ...instance, fault: "postgres-cut", lastsMs: [1_000, 3_000], variants: CUT_AT },
    { ...instance, fault: "edge-partition", lastsMs: [500, 9_000], variants: DIRECTIONS },
    { ...instance, fault: "edge-delay", lastsMs: [1_000, 5_000], variants: ["50", "400"] },
    { ...instance, fault: "edge-slow", lastsMs: [1_000, 5_000], variants: ["2000", "20000"] },
    { ...instance, fault: "edge-reset", lastsMs: [0, 0] },
    { ...instance, fault: "edge-flap", lastsMs: [2_000, 4_000] },
    { role: "instance", count: 1, fault: "storm", lastsMs: [0, 0] },
    { ...postgres, fault: "crash", lastsMs: [0, 1_500] },
    { ...postgres, fault: "freeze", lastsMs: [500, 4_000] },
    { ...redis, fault: "crash", lastsMs: [0, 1_500] },
    { ...redis, fault: "freeze", lastsMs: [500, 4_000] },
    { ...redis, fault: "full", lastsMs: [500, 3_000] },
  ];
  if (hot === "redis")
    cards.push(
      { ...instance, fault: "redis-partition", lastsMs: [500, 9_000], variants: DIRECTIONS },
      { ...instance, fault: "redis-delay", lastsMs: [1_000, 5_000], variants: ["50", "400"] },
      { ...instance, fault: "redis-reset", lastsMs: [0, 0] },
    );
  else cards.push({ ...redis, fault: "failover", lastsMs: [0, 0] });
  if (clocks.includes("instance"))
    cards.push({ ...instance, fault: "clock", lastsMs: [1_000, 8_000], variants: HOUR });
  if (clocks.includes("postgres"))
    cards.push({ ...postgres, fault: "clock", lastsMs: [1_000, 8_000], variants: ["5", "-5"] });
  // Not Redis: what it wrote to a full disk it may be unable to read after a crash, and that is its own promise.
  if (hasPostgresDisk) cards.push({ ...postgres, fault: "nospace", lastsMs: [500, 4_000] });
  // Their promises are about the life of the hot state: emptying it proves nothing about them.
  if (workloads.every(({ survivesHotLoss }) => survivesHotLoss) && hot === "redis")
    cards.push({ ...redis, fault: "empty", lastsMs: [0, 0] });
  if (targets.isMixed) cards.push({ ...instance, fault: "swap", lastsMs: [200, 2_000] });
  for (const { role, count, lines, hasDisk, spared, awayMaxMs, versions } of parties) {
    const ownCards: Card[] = [
      { role, count, fault: "kill", lastsMs: [200, awayMaxMs] },
      { role, count, fault: "freeze", lastsMs: [500, 2 * awayMaxMs] },
      { role, count, fault: "stop", lastsMs: [200, 2_000] },
      ...(versions > 1 ? [{ role, count, fault: "swap", lastsMs: [200, 2_000] } as const] : []),
      ...(hasDisk ? [{ role, count, fault: "nospace", lastsMs: [500, 8_000] } as const] : []),
      ...lines.flatMap((line): Card[] => [
        {
          role,
          count,
          fault: `${line}-partition`,
          lastsMs: [500, 2 * awayMaxMs],
          variants: DIRECTIONS,
        },
        { role, count, fault: `${line}-reset`, lastsMs: [0, 0] },
      ]),
    ];
    cards.push(...ownCards.filter(({ fault }) => !spared.includes(fault)));
  }
  cards.push(...own);
  return only.length === 0 ? cards : cards.flatMap((card) => chosen(card, only));
}

const HOUR = ["3600", "-3600"] as const;

/** What the bytes of a statement say whose reply is to be lost: its commit is done, its caller does not know. */
const CUT_AT = ["nonce_commit", "node_unit", "deployment"] as const;

/** `freeze` is every freeze, `instance.freeze` that of an instance, `instance.freeze:9000` one of 9 s, always. */
function chosen(card: Card, only: readonly string[]): Card[] {
  const { fault, role } = card;
  const names = [fault, `${role}.${fault}`, `${role}.*`];
  const wish = only.map((name) => name.split(":")).find(([name = ""]) => names.includes(name));
  if (!wish) return [];
  const ms = Number(wish[1]);
  return [wish[1] === undefined ? card : { ...card, lastsMs: [ms, ms] }];
}

export function partyTargets(
  actors: readonly Pick<Actor, "role" | "lines" | "disk" | "spared" | "awayMaxMs" | "builds">[],
): PartyTargets[] {
  return [...groupBy(actors, ({ role }) => role)].map(([role, own]) => ({
    role,
    count: own.length,
    lines: Object.keys(own[0]!.lines),
    hasDisk: own[0]!.disk !== undefined,
    spared: own[0]!.spared,
    awayMaxMs: own[0]!.awayMaxMs,
    versions: own[0]!.builds.length,
  }));
}
