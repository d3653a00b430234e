import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { Doorbell, NewDoorbell } from "./doorbell.ts";
import type { Backlog } from "./inbox-store.ts";
import type { BuryReason } from "./message-policy.ts";

/** What delivery does for an instance. */
export interface Delivery {
  /** Resolves when the message is in that inbox, or was refused. A failure means that nobody knows. */
  send(instanceId: string, message: NewDoorbell): Promise<Sent>;
  start(): void;
  /** Reads no more, finishes what is in flight, and leaves the list if nothing is left of this inbox. */
  stop(): Promise<void>;
  /** Messages of this instance's inbox that have not come to an end: unread, or read and unacknowledged. */
  pending(): Promise<number>;
  /** The same of any instance, and its dead letters. */
  backlog(instanceId: string): Promise<Backlog>;
  /** The store's time, in which deadlines are written. */
  nowMs(): Promise<number>;
  readonly dlq: DeadLetters;
}

export interface DeliveryOptions {
  store: HotStore;
  instanceId: string;
  settings: DeliverySettings;
  clock: Clock;
  log: Log;
  meter?: Meter;
  /**
   * The effect of a message, here. It must be safe to do twice, and must end by itself: a message is in flight
   * until it does. A rejection is a `retry`.
   */
  receive(message: Doorbell): Promise<Received>;
  /** Where a message's target is connected now, by the owner keys. */
  route(message: Doorbell): Promise<Destination>;
}

export type DeliverySettings = Pick<
  Config["scheduler"]["phase2"],
  | "stream_group"
  | "stream_block_ms"
  | "stream_count"
  | "stream_maxlen"
  | "dlq_enabled"
  | "dlq_maxlen"
  | "dlq_max_deliveries"
  | "dlq_scan_interval_ms"
  | "dlq_scan_count"
>;

/** `full`: at `stream_maxlen`; the caller answers `INBOX_FULL` or tries again later. */
export type Sent = { outcome: "sent"; id: string } | { outcome: "full"; length: number };

/**
 * `done` took effect; `superseded` is of an older attempt, or of a job that has ended; `retry` could not be
 * done now; `elsewhere`: its target is not connected here, route it again.
 */
export type Received = "done" | "superseded" | "retry" | "elsewhere";

/**
 * `wait`: nobody owns the target now, but somebody may soon. `gone`: the message has nothing left to do and
 * counts as superseded; in doubt say `wait`, then its deadline makes it a dead letter that somebody can see.
 */
export type Destination = { to: string } | "wait" | "gone";

/** What can be counted, for the metrics. Each message accepted ends as done, superseded, or buried, once. */
export interface Meter {
  count(event: MeterEvent, by?: number): void;
  /** Became a dead letter, or would have with `dlq_enabled`: the seed's `scheduler_phase2_dlq_moved_total`. */
  bury(reason: BuryReason): void;
  /** Messages in this instance's inbox, once per scan: the seed's `scheduler_phase2_inbox_pending`. */
  pending(messages: number): void;
}

export const METER_EVENTS = [
  /** Accepted into an inbox. */
  "sent",
  /** Refused with `full`. */
  "refused",
  "done",
  "superseded",
  /** Moved from a dead instance's inbox, or from ours, to its target's owner. */
  "forwarded",
  /** Looked at, and left for the next round: a retry, a target without an owner, a full inbox. */
  "left",
  /** Dead letters that made room for newer ones, or were older than `LETTERS_KEPT_MS`. */
  "dropped",
  "redriven",
  "discarded",
] as const;
export type MeterEvent = (typeof METER_EVENTS)[number];

/** Dead letters are kept for seven days. An instance that is gone stays listed no longer because of them. */
export const LETTERS_KEPT_MS = 7 * 86_400_000;

/** Names one dead letter; on the wire `<instance_id>:<stream id>`. */
export interface LetterId {
  instanceId: string;
  streamId: string;
}

export interface DeadLetter extends LetterId {
  reason: string;
  deliveries: number;
  /** From its sending until it was given up. */
  ageMs: number;
  movedAtMs: number;
  /** The message as it was. */
  bytes: Buffer;
  /** Absent when nobody can read it. */
  message: Doorbell | undefined;
}

export interface DeadLetters {
  /** By instance, then oldest first; `after` is the last one of the page before. */
  list(page: {
    limit: number;
    instanceId?: string | undefined;
    after?: LetterId | undefined;
  }): Promise<DeadLetter[]>;
  read(id: LetterId): Promise<DeadLetter | undefined>;
  /** Sends it again with a new deadline: to `to`, or to where its target is connected now. */
  redrive(id: LetterId, to?: string): Promise<Redriven>;
  /** `false`: there is no such letter (any more). */
  discard(id: LetterId): Promise<boolean>;
}

export type Redriven =
  | { outcome: "redriven"; instanceId: string }
  | { outcome: "absent" }
  | { outcome: "unreadable" }
  | { outcome: "full"; instanceId: string }
  /** `wait` and `gone` as for a `Destination`. */
  | { outcome: "nowhere"; because: "wait" | "gone" };
