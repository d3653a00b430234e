import type { Call, Skipped, When } from "./call.ts";
import type { Script } from "./script.ts";

/** The hot state of jobs and routing: in memory, in one Redis, or in a Redis Cluster. */
export interface HotStore {
  readonly kind: "memory" | "redis" | "redis-cluster";
  /** The prefix of every key. */
  readonly prefix: string;
  run<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
  ): Promise<Reply>;
  /** As `run`, for a caller that makes other calls depend on this one. */
  start<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
  ): Call<Reply>;
  /**
   * Starts a script that is run only if the replies of earlier calls allow it. Calls that are started in one tick, each
   * depending on the one before, are one round trip where the store can run them together (one Redis), and one after the
   * other where it cannot: with the same answers in the same order.
   */
  startIf<Key extends string, Args, Reply>(
    when: When<keyof Args & string>,
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
  ): Call<Reply | Skipped>;
  /**
   * What a call that many jobs share waits for before it may depend on this call; `undefined` if nothing, because both go
   * together. Where every call goes alone, a shared call would wait for the slowest of all that it depends on.
   */
  awaitedBy(call: Call): Promise<unknown> | undefined;
  /** Wakes the subscribers. A lost message costs one refresh interval. */
  publish(channel: string, message: string): Promise<void>;
  subscribe(channel: string, listener: (message: string) => void): Promise<void>;
  /** Calls `listener` when the store is connected again: it may have lost its data meanwhile. */
  onBack(listener: () => void): void;
  /** Resolves when the store answers and accepts a write; rejects with `DEPENDENCY_DOWN` and the reason otherwise. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
