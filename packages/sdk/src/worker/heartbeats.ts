import { type NodeToServer, type ServerToNode, TenureError } from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";

export type Heartbeat = Extract<NodeToServer, { type: "node_heartbeat" }>;
type HeartbeatAck = Extract<ServerToNode, { type: "node_heartbeat_ack" }>;

export interface Heartbeats {
  /**
   * Monotonic send time of the newest heartbeat whose presence the server wrote to Postgres. The send time and not that
   * of the answer: the server renewed presence in between, and the lease must not seem to last longer than it does.
   */
  readonly lastContactMs: number | undefined;
  start(connection: { epoch: number; intervalMs: number }): void;
  /** Sends one now; the next follows one interval later. Does nothing without a connection. */
  beatNow(): void;
  acked(ack: HeartbeatAck): void;
  stop(): void;
}

/** The shortest interval that is accepted from a server. */
const INTERVAL_MS_MIN = 20;
/** Heartbeats without an answer whose send time is kept. */
const UNANSWERED_MAX = 64;

const REFUSALS_MAX = 2;
/** As long as two refusals take, and a little more for a slow answer. */
const SILENT_INTERVALS_MAX = 2.5;

export function createHeartbeats({
  clock,
  send,
  sample,
  contact,
  unconfirmed,
  problem,
}: {
  clock: Clock;
  send: (heartbeat: Heartbeat) => SendOutcome;
  /** The contents of a heartbeat. Called for each. */
  sample: () => Omit<Heartbeat, "type" | "seq">;
  contact: (lastContactMs: number) => void;
  /** Presence was refused twice in a row, or not confirmed for as long: the server has lost its stores. */
  unconfirmed?: () => void;
  problem: (error: TenureError) => void;
}): Heartbeats {
  const sentAtMs = new Map<number, number>();
  let seq = 0;
  let epoch: number | undefined;
  /** Send time of the newest confirmed heartbeat, or the beginning of this connection. */
  let confirmedAtMs = 0;
  let refusals = 0;
  let everyMs = 0;
  let lastContactMs: number | undefined;
  let cancel: Cancel = () => {};

  function beat(intervalMs: number, dueMs = clock.monotonicMs()): void {
    const nowMs = clock.monotonicMs();
    cancel = clock.after(intervalMs, () => beat(intervalMs, nowMs + intervalMs));
    try {
      seq += 1;
      // A process that was suspended or busy has not read the answers yet.
      const wasBusy = nowMs - dueMs > intervalMs;
      if (!wasBusy && nowMs - confirmedAtMs > SILENT_INTERVALS_MAX * intervalMs) unconfirmed?.();
      if (send({ type: "node_heartbeat", seq, ...sample() }) === "sent") remember(seq, nowMs);
    } catch (error) {
      // A heartbeat without its sample would claim that nothing runs here.
      const reason = "could not sample this node; skipped a heartbeat";
      problem(new TenureError("INTERNAL", { reason }, { cause: error }));
    }
  }

  function remember(number: number, nowMs: number): void {
    sentAtMs.set(number, nowMs);
    const [oldest] = sentAtMs.keys();
    if (sentAtMs.size > UNANSWERED_MAX && oldest !== undefined) sentAtMs.delete(oldest);
  }

  return {
    get lastContactMs() {
      return lastContactMs;
    },
    start(connection) {
      epoch = connection.epoch;
      confirmedAtMs = clock.monotonicMs();
      refusals = 0;
      everyMs = Math.max(INTERVAL_MS_MIN, connection.intervalMs);
      beat(everyMs);
    },
    beatNow() {
      if (epoch === undefined) return;
      cancel();
      beat(everyMs);
    },
    acked(ack) {
      const sentMs = sentAtMs.get(ack.seq);
      sentAtMs.delete(ack.seq);
      if (sentMs === undefined) return;
      refusals = ack.presence_ok ? 0 : refusals + 1;
      if (refusals >= REFUSALS_MAX) unconfirmed?.();
      if (!ack.presence_ok || ack.epoch !== epoch) return;
      confirmedAtMs = Math.max(confirmedAtMs, sentMs);
      if (lastContactMs !== undefined && sentMs <= lastContactMs) return;
      lastContactMs = sentMs;
      contact(lastContactMs);
    },
    stop() {
      cancel();
      epoch = undefined;
      sentAtMs.clear();
    },
  };
}
