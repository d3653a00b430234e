import type { Config } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Condition } from "../store/call.ts";
import type { HotStore } from "../store/hot-store.ts";
import type { DeliveryMetrics } from "../telemetry.ts";
import type { Doorbell, NewDoorbell } from "./doorbell.ts";
import type { Backlog } from "./inbox-store.ts";

export interface Delivery {
  /** Resolves when the message is in that inbox, or was refused. After a rejection the outcome is unknown. */
  send(instanceId: string, message: NewDoorbell): Promise<Sent>;
  /** Sends the message only if the conditions hold. */
  sendIf(
    conditions: readonly Condition[],
    instanceId: string,
    message: NewDoorbell,
  ): Promise<Sent | { outcome: "skipped" }>;
  start(): void;
  /** Stops reading, finishes the messages in flight, and takes this instance off the list if its inbox is empty. */
  stop(): Promise<void>;
  /** Unacknowledged messages and dead letters of any instance. */
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
  /** Each accepted message is counted once as done, superseded or dead letter. */
  telemetry: DeliveryMetrics;
  /**
   * Applies a message on this instance. It must be idempotent and must end by itself: the message is in flight until it
   * does. A rejection counts as `retry`.
   */
  receive(message: Doorbell): Promise<Received>;
  /** Looks up the instance that a message's target is connected to, by the owner keys. */
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

/** `full`: at `stream_maxlen`; the caller answers `INBOX_FULL` or retries later. */
export type Sent = { outcome: "sent"; id: string } | { outcome: "full"; length: number };

/**
 * `done`: the message took effect. `superseded`: it names an older attempt, or a job that has ended. `retry`: it could not
 * be applied now. `elsewhere`: its target is not connected here, route it again.
 */
export type Received = "done" | "superseded" | "retry" | "elsewhere";

/**
 * `wait`: the target has no owner now, but may get one soon. `gone`: the message has nothing left to do and counts as
 * superseded. When in doubt answer `wait`: at its deadline the message becomes a dead letter that an operator can see.
 */
export type Destination = { to: string } | "wait" | "gone";

/** Dead letters are kept for seven days. They keep a dead instance on the list no longer than that. */
export const LETTERS_KEPT_MS = 7 * 86_400_000;

/** Names one dead letter; in the API `<instance_id>:<stream id>`. */
export interface LetterId {
  instanceId: string;
  streamId: string;
}

export interface DeadLetter extends LetterId {
  reason: string;
  deliveries: number;
  /** From sending the message until it became a dead letter. */
  ageMs: number;
  movedAtMs: number;
  /** The message as it was written. */
  bytes: Buffer;
  /** Absent when the bytes cannot be parsed. */
  message: Doorbell | undefined;
}

export interface DeadLetters {
  /** By instance, then oldest first; `after` is the last letter of the previous page. */
  list(page: {
    limit: number;
    instanceId?: string | undefined;
    after?: LetterId | undefined;
  }): Promise<DeadLetter[]>;
  read(id: LetterId): Promise<DeadLetter | undefined>;
  /** Sends the message again with a new deadline: to `to`, or to the instance its target is connected to. */
  redrive(id: LetterId, to?: string): Promise<Redriven>;
  /** `false`: there is no such letter, or no longer. */
  discard(id: LetterId): Promise<boolean>;
}

export type Redriven =
  | { outcome: "redriven"; instanceId: string }
  | { outcome: "absent" }
  | { outcome: "unreadable" }
  | { outcome: "full"; instanceId: string }
  /** `wait` and `gone` as for a `Destination`. */
  | { outcome: "nowhere"; because: "wait" | "gone" };
