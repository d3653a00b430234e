import type { Cancel, Clock } from "../clock.ts";
import type { Fetch } from "./tls.ts";

/** The result of `/health/ready`. `unknown`: it may not be called, e.g. from a page of another origin. */
export type Readiness = { status: "ready"; instanceId?: string } | { status: "down" | "unknown" };
export type CheckReady = (url: string, fetchWith?: Fetch) => Promise<Readiness>;

/** Presence is not renewed, or calls fail with `DEPENDENCY_DOWN`. */
export type Trouble = "presence" | "stores";

export interface Mover {
  /** The instance answers but has lost its stores. Called repeatedly while it lasts. */
  trouble(sign: Trouble): void;
  /** That sign of trouble has ended. */
  well(sign: Trouble): void;
  /** The connection was lost or is new: former signs are void. */
  reset(): void;
}

interface MoverOptions {
  clock: Clock;
  /** At least 0, below 1. */
  random: () => number;
  /** The other URLs, in the order to check. */
  urls: () => readonly string[];
  checkReady: (url: string) => Promise<Readiness>;
  /** The instance that is in trouble: behind a load balancer its own URL may lead to another one. */
  current: () => string | undefined;
  move: (url: string) => void;
}

interface Found {
  /** An instance to move to. */
  url: string | undefined;
  isOwnReady: boolean;
}

/** All clients of an instance notice its trouble at the same time, and must not move together. */
const SPREAD_MS = 2_000;
const CHECK_EVERY_MS = 5_000;
const MOVE_EVERY_MS = 30_000;

/**
 * Decides when a connection leaves an instance that cannot reach its stores.
 *
 * It moves only to an instance that is ready: while the stores are down for all instances, every connection stays. At most
 * one move in 30 s.
 */
export function createMover(options: MoverOptions): Mover {
  const { clock, random } = options;
  const signs = new Set<Trouble>();
  let cancel: Cancel = () => {};
  let movedAtMs = Number.NEGATIVE_INFINITY;
  // Incremented when the trouble ends, so that a later answer has no effect.
  let round = 0;
  let wasOutage = false;
  let hasWaited = false;

  function checkIn(ms: number): void {
    const nextMoveMs = movedAtMs + MOVE_EVERY_MS + SPREAD_MS * random();
    cancel = clock.after(Math.max(ms, nextMoveMs - clock.monotonicMs()), () => void check());
  }

  async function check(): Promise<void> {
    const began = round;
    const found = await findReady();
    if (began !== round) return;
    // An idle session sends nothing that could show that the stores are back.
    if (found.isOwnReady) well("stores");
    if (signs.size === 0) return;
    const url = decide(found);
    if (url !== undefined) movedAtMs = clock.monotonicMs();
    checkIn(CHECK_EVERY_MS * (0.5 + random()));
    if (url !== undefined) options.move(url);
  }

  /**
   * Waits for one more check after an outage of all instances, or when the own one is ready again: the next heartbeat is
   * likely to end the trouble.
   */
  function decide({ url, isOwnReady }: Found): string | undefined {
    const isRecovering = wasOutage || isOwnReady;
    wasOutage = url === undefined;
    if (url === undefined || !isRecovering || hasWaited) {
      hasWaited = false;
      return url;
    }
    hasWaited = true;
    return undefined;
  }

  /** Prefers an instance that is known to be ready to one that may not be called, whose handshake decides. */
  async function findReady(): Promise<Found> {
    const urls = options.urls();
    const answers = await Promise.all(urls.map((url) => options.checkReady(url)));
    const ready = answers.findIndex((answer) => answer.status === "ready" && !isCurrent(answer));
    const unknown = answers.findIndex((answer) => answer.status === "unknown");
    return { url: urls[ready >= 0 ? ready : unknown], isOwnReady: answers.some(isCurrent) };
  }

  const isCurrent = (answer: Readiness): boolean =>
    answer.status === "ready" &&
    answer.instanceId !== undefined &&
    answer.instanceId === options.current();

  function end(): void {
    signs.clear();
    round += 1;
    wasOutage = false;
    hasWaited = false;
    cancel();
  }

  function well(sign: Trouble): void {
    if (signs.delete(sign) && signs.size === 0) end();
  }

  return {
    trouble(sign) {
      const isNew = signs.size === 0;
      signs.add(sign);
      if (isNew) checkIn(SPREAD_MS * random());
    },
    well,
    reset: end,
  };
}

const READY_WITHIN_MS = 2_000;

/** Calls `/health/ready`. An answer other than 200, and none in time, count as down. */
export async function fetchReady(url: string, fetchWith: Fetch = fetch): Promise<Readiness> {
  try {
    const response = await fetchWith(url, { signal: AbortSignal.timeout(READY_WITHIN_MS) });
    if (response.status !== 200) return { status: "down" };
    const { instance_id } = (await response.json()) as { instance_id?: unknown };
    return {
      status: "ready",
      ...(typeof instance_id === "string" && { instanceId: instance_id }),
    };
  } catch {
    return { status: "down" };
  }
}

/** So many `DEPENDENCY_DOWN` answers in a row count as an outage; a single one may be a short hiccup. */
const IN_A_ROW = 2;

/** Counts the `DEPENDENCY_DOWN` answers of an instance and reports an outage of its stores to the connection. */
export function createOutages(connection: () => Pick<Mover, "trouble" | "well">) {
  let inARow = 0;
  return {
    /** `code` is undefined for an answer that is not an error. */
    answered(code: string | undefined): void {
      if (code === "DEPENDENCY_DOWN") {
        inARow += 1;
        if (inARow >= IN_A_ROW) connection().trouble("stores");
      } else if (code === undefined) {
        inARow = 0;
        connection().well("stores");
      }
    },
  };
}
