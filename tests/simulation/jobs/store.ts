import { TenureError } from "@tenure/protocol";
import type { Clock } from "../../../packages/server/src/kernel/clock.ts";
import type { HotStore } from "../../../packages/server/src/store/hot-store.ts";
import type { MemorySpace } from "../../../packages/server/src/store/memory-space.ts";
import type { Script } from "../../../packages/server/src/store/script.ts";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";

/** What the simulated network does to one instance and its store. */
export interface StoreWeather {
  latencyMs(): number;
  /** Nothing gets through now. */
  isDown(): boolean;
  /** The command was done, and its answer is lost. */
  isLost(): boolean;
}

export interface SharedStore {
  readonly space: MemorySpace;
  /** The way of one instance to it. Whoever is dead hears nothing any more. */
  open(isAlive: () => boolean): HotStore;
}

/** Changes what a script is asked, or keeps it from running: a planted bug. */
export type Spoil = (
  call: { name: string; keys: Record<string, string>; args: Record<string, unknown> },
  space: MemorySpace,
) => void;

interface Call {
  run(): Promise<unknown>;
  resolve(reply: unknown): void;
  reject(error: unknown): void;
}

/**
 * The server's own store in memory, as several instances would share a Redis: behind a network with a latency, that
 * fails before or after a command took effect. What one instance asks in one turn goes as one pipeline, in order.
 */
export async function createSharedStore({
  inner,
  timeline,
  chance,
  weather,
  isCluster,
  ran,
  spoil,
}: {
  inner: HotStore;
  timeline: Timeline;
  chance: Chance;
  weather: StoreWeather;
  /** Then the commands of a turn go to several places, and may overtake each other. */
  isCluster: boolean;
  /** After every script, with what it touched. */
  ran: (name: string, keys: Record<string, string>) => void;
  spoil?: Spoil | undefined;
}): Promise<SharedStore> {
  const space = await lookInside(inner);
  const hearers = new Map<string, Set<(message: string) => void>>();

  function open(isAlive: () => boolean): HotStore {
    const lanes = Array.from({ length: isCluster ? 3 : 1 }, () => createLane(isAlive));
    return {
      ...inner,
      kind: isCluster ? "redis-cluster" : "redis",
      run: (script, keys, args) =>
        new Promise((resolve, reject) => {
          const lane = chance.oneOf(lanes);
          const run = () => runSpoiled(script, keys, args);
          lane.add({ run, resolve: resolve as (reply: unknown) => void, reject });
        }),
      async publish(channel, message) {
        if (weather.isDown()) throw storeDown();
        for (const hear of hearers.get(channel) ?? [])
          timeline.after(weather.latencyMs(), () => hear(message));
      },
      async subscribe(channel, hear) {
        const here = hearers.get(channel) ?? new Set();
        hearers.set(
          channel,
          here.add((message) => isAlive() && !chance.isTrue(0.05) && hear(message)),
        );
      },
    };
  }

  async function runSpoiled<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
  ): Promise<Reply> {
    spoil?.({ name: script.name, keys, args: args as Record<string, unknown> }, space);
    const reply = await inner.run(script, keys, args);
    ran(script.name, keys);
    return reply;
  }

  function createLane(isAlive: () => boolean) {
    let turn: Call[] | undefined;
    let freeAtMs = 0;

    function send(): void {
      const calls = turn ?? [];
      turn = undefined;
      const nowMs = timeline.monotonicMs();
      freeAtMs = Math.max(freeAtMs, nowMs + weather.latencyMs());
      timeline.after(freeAtMs - nowMs, () => void arrive(calls));
    }

    async function arrive(calls: Call[]): Promise<void> {
      if (weather.isDown()) return answer(calls, () => storeDown());
      const replies: { reply?: unknown; error?: unknown }[] = [];
      for (const call of calls)
        replies.push(
          await call.run().then(
            (reply) => ({ reply }),
            (error: unknown) => ({ error }),
          ),
        );
      if (weather.isLost()) return answer(calls, () => storeDown());
      timeline.after(weather.latencyMs(), () => {
        if (!isAlive()) return;
        for (const [index, { resolve, reject }] of calls.entries()) {
          const { reply, error } = replies[index]!;
          if (error === undefined) resolve(reply);
          else reject(error);
        }
      });
    }

    function answer(calls: Call[], error: () => TenureError): void {
      timeline.after(weather.latencyMs() + 200, () => {
        if (isAlive()) for (const { reject } of calls) reject(error());
      });
    }

    return {
      add(call: Call): void {
        if (!turn) {
          turn = [];
          setImmediate(send);
        }
        turn.push(call);
      },
    };
  }

  return { space, open };
}

const storeDown = (): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the hot store", reason: "no answer" });

/** A script that answers with the keyspace itself: those who check may look, and change nothing. */
async function lookInside(inner: HotStore): Promise<MemorySpace> {
  const asIs = { parse: (value: unknown) => value };
  const peek = { name: "peek", args: asIs, reply: asIs, memory: (space: MemorySpace) => space };
  return inner.run(peek as unknown as Script<"key", object, MemorySpace>, { key: "peek" }, {});
}

/** Time for server code: the timeline's. A dead process never wakes. */
export function serverClock(timeline: Timeline, isAlive: () => boolean = () => true): Clock {
  return {
    monotonicMs: timeline.monotonicMs,
    wallMs: () => WALL_START_MS + timeline.monotonicMs(),
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const wake = () => {
          cancel();
          signal?.removeEventListener("abort", wake);
          if (isAlive()) resolve();
        };
        const cancel = timeline.after(ms, wake);
        signal?.addEventListener("abort", wake, { once: true });
      }),
  };
}

export const WALL_START_MS = 1_700_000_000_000;
