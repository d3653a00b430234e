import { TenureError } from "@tenure/protocol";
import type { Clock } from "../../../packages/server/src/kernel/clock.ts";
import {
  type Call,
  type Condition,
  openCallsOf,
  outcomeOf,
  SKIPPED,
  type Skipped,
  StartedCall,
  type When,
} from "../../../packages/server/src/store/call.ts";
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

interface Sent {
  call: StartedCall;
  run(): Promise<unknown>;
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
  /** The outcome of each call at the store, which its caller may never learn. */
  const answered = new WeakMap<Call, Call>();
  const hearers = new Map<string, Set<(message: string) => void>>();

  function open(isAlive: () => boolean): HotStore {
    const lanes = Array.from({ length: isCluster ? 3 : 1 }, () => createLane(isAlive));
    const isJoined = (call: Call): boolean => !isCluster && lanes[0]!.has(call);

    /** A condition on a call of the same turn is decided there, any other when its call has answered. */
    function start<Key extends string, Args, Reply>(
      script: Script<Key, Args, Reply>,
      keys: Record<Key, string>,
      args: Args,
      when?: When,
    ): StartedCall<Reply> {
      const call = new StartedCall<Reply>();
      const begin = () => {
        const run = () => runSpoiled(script, keys, args, when);
        chance.oneOf(lanes).add({ call: call as StartedCall, run });
      };
      const open = when ? openCallsOf(when) : [];
      if (open.every(isJoined)) begin();
      else void Promise.allSettled(open.map(({ reply }) => reply)).then(begin);
      return call;
    }

    return {
      ...inner,
      kind: isCluster ? "redis-cluster" : "redis",
      run: (script, keys, args) => start(script, keys, args).reply,
      start: (script, keys, args) => start(script, keys, args),
      startIf: (when, script, keys, args) => start(script, keys, args, when),
      awaitedBy: (call) =>
        outcomeOf(call) !== undefined || isJoined(call) ? undefined : call.reply.catch(() => {}),
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
    when: When = {},
  ): Promise<Reply | Skipped> {
    spoil?.({ name: script.name, keys, args: args as Record<string, unknown> }, space);
    const reply = await inner.startIf(there(when) as When<keyof Args & string>, script, keys, args)
      .reply;
    if (reply !== SKIPPED) ran(script.name, keys);
    return reply;
  }

  /** The conditions as the store sees them: a call of the same turn has its outcome there, and not yet here. */
  function there({ all = [], words }: When): When {
    const of = (condition: Condition): Condition => {
      const arrived = outcomeOf(condition.call) ? undefined : answered.get(condition.call);
      return arrived ? { ...condition, call: arrived } : condition;
    };
    const each = words?.each.map((condition) => condition && of(condition));
    return { all: all.map(of), ...(words && each && { words: { of: words.of, each } }) };
  }

  function createLane(isAlive: () => boolean) {
    let turn: Sent[] | undefined;
    let freeAtMs = 0;

    function send(): void {
      const calls = turn ?? [];
      turn = undefined;
      const nowMs = timeline.monotonicMs();
      freeAtMs = Math.max(freeAtMs, nowMs + weather.latencyMs());
      timeline.after(freeAtMs - nowMs, () => void arrive(calls));
    }

    async function arrive(calls: Sent[]): Promise<void> {
      if (weather.isDown()) return answer(calls, () => storeDown());
      const replies: { reply?: unknown; error?: unknown }[] = [];
      for (const { call, run } of calls) {
        const arrived = new StartedCall();
        arrived.reply.catch(() => {});
        const reply = await run().then(
          (reply) => ({ reply }),
          (error: unknown) => ({ error }),
        );
        if ("error" in reply) arrived.fail(reply.error);
        else if (reply.reply === SKIPPED) arrived.skip();
        else arrived.answer(reply.reply, reply.reply);
        answered.set(call, arrived);
        replies.push(reply);
      }
      if (weather.isLost()) return answer(calls, () => storeDown());
      timeline.after(weather.latencyMs(), () => {
        if (!isAlive()) return;
        for (const [index, { call }] of calls.entries()) {
          const { reply, error } = replies[index]!;
          if (error !== undefined) call.fail(error);
          else if (reply === SKIPPED) call.skip();
          else call.answer(reply, reply);
        }
      });
    }

    function answer(calls: Sent[], error: () => TenureError): void {
      timeline.after(weather.latencyMs() + 200, () => {
        if (isAlive()) for (const { call } of calls) call.fail(error());
      });
    }

    return {
      has: (call: Call) => turn?.some((sent) => sent.call === call) ?? false,
      add(sent: Sent): void {
        if (!turn) {
          turn = [];
          setImmediate(send);
        }
        turn.push(sent);
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
  const peek = {
    name: "peek",
    keys: ["key"],
    args: asIs,
    reply: asIs,
    memory: (space: MemorySpace) => space,
  };
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
