import { expect, test } from "vitest";
import { openTestHot } from "../../testing/hot-stores.ts";
import { createManualClock } from "../../testing/manual-clock.ts";
import { systemRandom } from "../kernel/random.ts";
import type { HotStore } from "../store/hot-store.ts";
import { createSessions, type SessionLink } from "./sessions.ts";

/** A script call that is held until it is let go: the one of the connection with this epoch. */
async function scene(held: { script: string; epoch: number }) {
  const { hot: store } = await openTestHot("memory");
  let letGo = () => {};
  const gate = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  let epoch = 0;
  const hot: HotStore = {
    ...store,
    async run(script, keys, args) {
      const isHeld = script.name === held.script && epochOf(args) === held.epoch;
      if (isHeld) await gate;
      return store.run(script, keys, args);
    },
  };
  const sessions = createSessions({
    tokenSessionsMax: 0,
    ...{ instanceId: "i", hot, clock: createManualClock(), random: systemRandom },
    db: { query: async () => ({ rows: [{ epoch: ++epoch }] }) } as never,
    ...{ ownerTtlMs: 45_000, goneAfterMs: 600_000, log: {} as never, onFoundAgain: () => {} },
  });
  const closed: string[] = [];
  const link = (name: string) =>
    ({
      ...{ send: () => {}, sendText: () => {} },
      close: () => void closed.push(name),
    }) as Partial<SessionLink> as SessionLink;
  return { sessions, closed, link, letGo };
}

const epochOf = (args: unknown) => (args as { epoch?: number }).epoch;

test("two joins of one session at once: the newer one stays, the older one alone is closed", async () => {
  const { sessions, closed, link, letGo } = await scene({ script: "claim-owner", epoch: 2 });
  const first = await sessions.join({ tenant: "t" }, link("first"));
  const resume = { sessionId: first.sessionId, resumeToken: first.resumeToken };
  const older = sessions.join({ tenant: "t", resume }, link("older"));
  await new Promise(setImmediate);
  const newer = await sessions.join({ tenant: "t", resume }, link("newer"));
  letGo();
  await older;
  expect(newer.epoch).toBe(3);
  expect(closed).toEqual(["first", "older"]);
  expect(sessions.connected().map(({ epoch }) => epoch)).toEqual([3]);
});
