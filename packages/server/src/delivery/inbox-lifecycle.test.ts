import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestHot } from "../../testing/hot-stores.ts";
import type { HotStore } from "../store/hot-store.ts";
import { openInbox, retireInbox } from "./inbox-lifecycle.ts";
import {
  closeInbox,
  delistInbox,
  listInboxes,
  markInbox,
  openPrepared,
  prepareInbox,
} from "./inbox-registry-store.ts";
import { readBacklog, sendMessage } from "./inbox-store.ts";

const GROUP = "scheduler";

describe.each(["redis", "redis-cluster"] as const)("opening and closing an inbox on %s", (kind) => {
  let hot: HotStore;
  beforeAll(async () => {
    hot = (await openTestHot(kind)).hot;
  });
  afterAll(() => hot.close());

  const entryOf = async (instanceId: string) =>
    (await listInboxes(hot)).find((listed) => listed.instanceId === instanceId);
  const send = (instanceId: string) => sendMessage(hot, { instanceId, text: "{}", lengthMax: 10 });

  test("an inbox takes messages only while it is open", async () => {
    expect(await send("a")).toEqual({ outcome: "closed" });
    await openInbox(hot, { instanceId: "a", group: GROUP });
    expect(await send("a")).toMatchObject({ outcome: "sent" });
    expect(await retireInbox(hot, (await entryOf("a"))!)).toBe(false);
    expect(await readBacklog(hot, "a")).toEqual({ messages: 1, letters: 0 });
  });

  test("200 who open it at once are all done, and it is listed once", async () => {
    const opening = { instanceId: "b", group: GROUP };
    await Promise.all(Array.from({ length: 200 }, () => openInbox(hot, opening)));
    expect(await send("b")).toMatchObject({ outcome: "sent" });
    expect((await listInboxes(hot)).filter(({ instanceId }) => instanceId === "b")).toHaveLength(1);
  });

  test("a mark keeps what else the entry says", async () => {
    await markInbox(hot, { instanceId: "c", mark: "m1" });
    await markInbox(hot, { instanceId: "c", mark: "m2" });
    expect(JSON.parse((await entryOf("c"))!.entry)).toEqual({ v: 1, mark: "m2" });
  });

  // A sender that finds the inbox closed, and another instance that finds it empty and clears it away: each
  // takes several steps, on two slots. However they interleave, the message must be where somebody looks.
  const SENDER_STEPS = 5;
  const CLOSER_STEPS = 3;
  const orders = interleavings(SENDER_STEPS, CLOSER_STEPS);

  test.each([
    "closed",
    "empty",
  ] as const)(`I7: in all ${orders.length} orders of steps a message sent is in an inbox that is listed (%s before)`, async (before) => {
    const unlisted: string[] = [];
    for (const order of orders) {
      const instanceId = `x${randomUUID()}`;
      await markInbox(hot, { instanceId, mark: "of its start" });
      if (before === "empty") await openInbox(hot, { instanceId, group: GROUP });
      const [sender, closer] = [sending(instanceId), closing(instanceId)];
      for (const step of order) await (step === "s" ? sender : closer).next();
      while (!(await sender.next()).done);
      const { messages } = await readBacklog(hot, instanceId);
      if (messages !== 1 || !(await entryOf(instanceId))) unlisted.push(order);
    }
    expect(unlisted).toEqual([]);
  }, 60_000);

  /** What `send` and `openInbox` do, one step per call. */
  async function* sending(instanceId: string): AsyncGenerator<void> {
    for (;;) {
      const sent = await send(instanceId);
      yield;
      if (sent.outcome === "sent") return;
      const mark = await prepareInbox(hot, { instanceId, group: GROUP, mark: randomUUID() });
      yield;
      if (mark === undefined) continue;
      await markInbox(hot, { instanceId, mark: randomUUID() });
      yield;
      await openPrepared(hot, { instanceId, group: GROUP, mark });
      yield;
    }
  }

  /** What an adopter does: look at the list, and then `retire`. */
  async function* closing(instanceId: string): AsyncGenerator<void> {
    const listed = await entryOf(instanceId);
    yield;
    const closed = await closeInbox(hot, instanceId);
    yield;
    if (listed && closed) await delistInbox(hot, listed);
    yield;
  }
});

/** Every order of `senders` s and `closers` c. */
function interleavings(senders: number, closers: number): string[] {
  if (senders === 0) return ["c".repeat(closers)];
  if (closers === 0) return ["s".repeat(senders)];
  return [
    ...interleavings(senders - 1, closers).map((rest) => `s${rest}`),
    ...interleavings(senders, closers - 1).map((rest) => `c${rest}`),
  ];
}
