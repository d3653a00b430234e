import type { AttemptEnd, AttemptPlace, TrackedJob } from "../job.ts";
import type { PoolNode } from "../memory/node-pool.ts";
import type { DeadlineKind } from "../memory/tracked-jobs.ts";
import type { RetryReason } from "../policy/retry-policy.ts";
import type { SlotAnswer } from "../store/slot-store.ts";
import type { StartedAdvance } from "../store/transition-store.ts";
import type { Announced } from "./result-delivery.ts";

/** DISPATCHED, written on condition. `takenBy`: as it was written; the node may have reconnected since. */
export interface StartedDispatch extends StartedAdvance {
  readonly takenBy: string | undefined;
}

/** A slot that was requested before its job was tracked. */
export interface PendingSlot {
  readonly node: PoolNode;
  readonly answer: Promise<SlotAnswer>;
  /** DISPATCHED, written together with the slot if the job and its request are written. Set when `answer` has come. */
  readonly dispatched: StartedDispatch | undefined;
  giveBack(): void;
}

/** What was started together with the end of a job. */
export interface WrittenWithEnd {
  /** Whether the slot is free and RELEASED is written. */
  released: Promise<boolean>;
  /** What the session's instance was sent about the result. Absent if nothing was started. */
  announced: Promise<Announced> | undefined;
}

/** What happens to a job next. `jobs.ts` maps each step to the function that does it. */
export type Step =
  /** Find a node for a tracked job, or let it wait. `reserved`: a slot that was requested ahead. */
  | { do: "place"; job: TrackedJob; reserved?: PendingSlot | undefined }
  /** Place the job on this node, which already has a slot for it. */
  | { do: "place_on"; job: TrackedJob; node: PoolNode }
  /** Offer free slots of the pool to its waiting jobs. */
  | { do: "serve"; pool: string }
  /** Slots of the node may be free. */
  | { do: "serve_node"; nodeId: string }
  /** End this attempt, then begin another or end the job. */
  | { do: "retry"; job: TrackedJob; reason: RetryReason; detail?: string }
  /** FINISHED is written: release, deliver the result, free the slot. `written`: what was started together with it. */
  | { do: "finish"; job: TrackedJob; end: AttemptEnd; written?: WrittenWithEnd | undefined }
  | { do: "expire"; job: TrackedJob; deadline: DeadlineKind }
  /** Stop an attempt that is over on its node. */
  | { do: "cancel_on_node"; attempt: AttemptPlace & { jobId: string }; reason: string }
  /** The store lost the record of the job: notify its session. */
  | { do: "report_loss"; job: TrackedJob };

/** Resolves when the step is done; steps that only start something return nothing. */
export type Next = (step: Step) => Promise<void> | void;
