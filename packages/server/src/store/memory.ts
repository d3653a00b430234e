import assert from "node:assert";
import { EventEmitter } from "node:events";
import { setImmediate as othersRun } from "node:timers/promises";
import type { Clock } from "../kernel/clock.ts";
import { every, type Service } from "../kernel/service.ts";
import { type EndedCall, holds, SKIPPED, type When, wordsLeft } from "./call.ts";
import type { HotStore } from "./hot-store.ts";
import { MemorySpace } from "./memory-space.ts";
import type { Script, SomeScript } from "./script.ts";

const SWEEP_INTERVAL_MS = 10_000;

/** The hot state of a single instance, lost with the process; docs/operate.md explains the consequences. */
export function openMemory({ prefix, clock }: { prefix: string; clock: Clock }): HotStore {
  const space = new MemorySpace(() => Math.floor(clock.wallMs()));
  const channels = new EventEmitter().setMaxListeners(0);
  const checkSlots = createSlotCheck();
  const sweep = async () => {
    for (const _ of space.sweep()) await othersRun();
  };
  const sweeper: Service = every(SWEEP_INTERVAL_MS, sweep, {
    clock,
    onError: (error) => assert.fail(String(error)),
  });
  sweeper.start();

  /**
   * A script is atomic here because it runs without an await. It runs at once, so every call that a condition names has
   * its outcome.
   */
  function start<Key extends string, Args, Reply>(
    script: Script<Key, Args, Reply>,
    keys: Record<Key, string>,
    args: Args,
    when?: When,
  ): EndedCall<Reply> {
    try {
      checkSlots(script, keys);
      const left = when ? argsIf(when, script.args.parse(args)) : script.args.parse(args);
      if (left === undefined) return { outcome: SKIPPED, reply: Promise.resolve(SKIPPED as Reply) };
      const reply = script.memory(space, keys, left);
      return { outcome: { reply }, reply: Promise.resolve(script.reply.parse(reply)) };
    } catch (error) {
      return { outcome: "failed", reply: Promise.reject(error) };
    }
  }

  return {
    kind: "memory",
    prefix,
    run: (script, keys, args) => start(script, keys, args).reply,
    start: (script, keys, args) => start(script, keys, args),
    startIf: (when, script, keys, args) => start(script, keys, args, when),
    awaitedBy: () => undefined,
    async publish(channel, message) {
      setImmediate(() => channels.emit(channel, message));
    },
    async subscribe(channel, listener) {
      channels.on(channel, listener);
    },
    onBack() {}, // never disconnected
    async ping() {},
    async close() {
      channels.removeAllListeners();
      await sweeper.stop();
    },
  };
}

/** The arguments as the conditions leave them; `undefined`: the script is not run. */
function argsIf<Args>({ all = [], words }: When, args: Args): Args | undefined {
  if (!all.every(holds)) return undefined;
  if (!words) return args;
  const text = (args as Record<string, string>)[words.of] ?? "";
  const left = wordsLeft(text, words.each);
  return left === undefined ? undefined : { ...args, [words.of]: left };
}

/** A script's keys are always made in the same way: its first calls show whether they are of one slot. */
const CHECKED_CALLS = 100;

/** Refuses what Redis Cluster would refuse, so that no script works in memory only. */
function createSlotCheck(): (
  script: Pick<SomeScript, "name" | "keys">,
  keys: Record<string, string>,
) => void {
  const left = new Map<string, number>();
  return ({ name, keys: names }, keys) => {
    const more = left.get(name) ?? CHECKED_CALLS;
    if (more === 0 || names.length === 1) return;
    left.set(name, more - 1);
    assertOneSlot(name, Object.values(keys));
  };
}

function assertOneSlot(name: string, keys: string[]): void {
  const [first = ""] = keys;
  for (const key of keys)
    if (tagOf(key) !== tagOf(first))
      assert.fail(`${name}: the keys ${keys.join(", ")} are not of one slot`);
}

function tagOf(key: string): string {
  const from = key.indexOf("{") + 1;
  const to = key.indexOf("}", from);
  return from > 0 && to > from ? key.slice(from, to) : key;
}
