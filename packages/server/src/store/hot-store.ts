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
  /** Wakes the subscribers. A lost message costs one refresh interval. */
  publish(channel: string, message: string): Promise<void>;
  subscribe(channel: string, listener: (message: string) => void): Promise<void>;
  /** Calls `listener` when the store is connected again: it may have lost its data meanwhile. */
  onBack(listener: () => void): void;
  /** Resolves when the store answers and accepts a write; rejects with `DEPENDENCY_DOWN` and the reason otherwise. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
