import type { Script } from "./script.ts";

/** The hot state of jobs and routing: in memory, in one Redis, or in a Redis Cluster. */
export interface HotStore {
  readonly kind: "memory" | "redis" | "redis-cluster";
  /** Every key begins with it. */
  readonly prefix: string;
  run<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
  ): Promise<Reply>;
  /** Wakes whoever subscribed, if anybody hears it. A lost message costs a refresh interval, no more. */
  publish(channel: string, message: string): Promise<void>;
  subscribe(channel: string, hear: (message: string) => void): Promise<void>;
  /** `hear` is called when the store is reached again after it was away: it may have lost its memory meanwhile. */
  onBack(hear: () => void): void;
  /** Resolves when the store answers and takes a write; throws `DEPENDENCY_DOWN` with the reason when it does not. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
