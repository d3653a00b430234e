import { type NodeToServer, type ServerToNode, TenureError } from "@tenure/protocol";
import type { Cancel, Clock } from "../clock.ts";
import type { SendOutcome } from "../connection/link.ts";

export type Heartbeat = Extract<NodeToServer, { type: "node_heartbeat" }>;
type HeartbeatAck = Extract<ServerToNode, { type: "node_heartbeat_ack" }>;

export interface Heartbeats {
  /**
   * When the newest heartbeat was *sent* whose presence the server wrote to Postgres, by the monotonic clock. Not
   * when its answer came: the server renewed presence somewhere in between, so only the send time is early enough
   * to count our silence from. A slow answer must shorten our trust, never stretch it.
   */
  readonly lastContactMs: number | undefined;
  start(connection: { epoch: number; intervalMs: number }): void;
  /** One out of turn; the next follows one interval later. Nothing while there is no connection. */
  beatNow(): void;
  acked(ack: HeartbeatAck): void;
  stop(): void;
}

/** A server that asks for more is not right in its mind. */
const INTERVAL_MS_MIN = 20;
/** Heartbeats without an answer, remembered by their send time. The oldest is forgotten first. */
const UNANSWERED_MAX = 64;

const REFUSALS_MAX = 2;
/** Without an answer it takes as long as two refusals, and a little more for an answer that is slow. */
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
  /** What runs here, and how busy the machine is. Asked anew for every heartbeat. */
  sample: () => Omit<Heartbeat, "type" | "seq">;
  contact: (lastContactMs: number) => void;
  /** Presence was refused twice in a row, or not confirmed for as long: the server is there, but not its stores. */
  unconfirmed?: () => void;
  problem: (error: TenureError) => void;
}): Heartbeats {
  const sentAtMs = new Map<number, number>();
  let seq = 0;
  let epoch: number | undefined;
  /** When the newest heartbeat was sent that was confirmed, or when this connection began. */
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
      // A process that was stopped or busy itself has not read the answers yet.
      const wasBusy = nowMs - dueMs > intervalMs;
      if (!wasBusy && nowMs - confirmedAtMs > SILENT_INTERVALS_MAX * intervalMs) unconfirmed?.();
      if (send({ type: "node_heartbeat", seq, ...sample() }) === "sent") remember(seq, nowMs);
    } catch (error) {
      // Without its sample it would say that nothing runs here. Missing one is the smaller lie.
      problem(new TenureError("INTERNAL", { reason: "no heartbeat" }, { cause: error }));
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
