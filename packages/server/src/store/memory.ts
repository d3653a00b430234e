import assert from "node:assert";
import { EventEmitter } from "node:events";
import { setImmediate as othersRun } from "node:timers/promises";
import type { Clock } from "../kernel/clock.ts";
import { every, type Service } from "../kernel/service.ts";
import type { HotStore } from "./hot-store.ts";
import { MemorySpace } from "./memory-space.ts";

const SWEEP_INTERVAL_MS = 10_000;

/** Hot state of a single instance. It is as durable as the process: docs/operate.md says what that means. */
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
    // Nothing awaits between the first line and the last: that is what makes a script atomic here.
    async run(script, keys, args) {
      assertOneSlot(script.name, Object.values(keys));
      return script.reply.parse(script.memory(space, keys, script.args.parse(args)));
    },
    async publish(channel, message) {
      setImmediate(() => channels.emit(channel, message));
    },
    async subscribe(channel, hear) {
      channels.on(channel, hear);
    },
    onBack() {}, // it is never away
    async ping() {},
    async close() {
      channels.removeAllListeners();
      await sweeper.stop();
    },
  };
}

/** What Redis Cluster would refuse is refused here too, so that no script works in memory alone. */
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
