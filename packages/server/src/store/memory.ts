import assert from "node:assert";
import { EventEmitter } from "node:events";
import { setImmediate as othersRun } from "node:timers/promises";
import type { Clock } from "../kernel/clock.ts";
import { every, type Service } from "../kernel/service.ts";
import type { HotStore } from "./hot-store.ts";
import { MemorySpace } from "./memory-space.ts";

const SWEEP_INTERVAL_MS = 10_000;

/** The hot state of a single instance, lost with the process; docs/operate.md explains the consequences. */
export function openMemory({ prefix, clock }: { prefix: string; clock: Clock }): HotStore {
  const space = new MemorySpace(() => Math.floor(clock.wallMs()));
  const channels = new EventEmitter().setMaxListeners(0);
  const sweep = async () => {
    for (const _ of space.sweep()) await othersRun();
  };
  const sweeper: Service = every(SWEEP_INTERVAL_MS, sweep, {
    clock,
    onError: (error) => assert.fail(String(error)),
  });
  sweeper.start();

  return {
    kind: "memory",
    prefix,
    // A script is atomic here because it runs without an await.
    async run(script, keys, args) {
      assertOneSlot(script.name, Object.values(keys));
      return script.reply.parse(script.memory(space, keys, script.args.parse(args)));
    },
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

/** Refuses what Redis Cluster would refuse, so that no script works in memory only. */
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
