import { TenureError } from "@tenure/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HOT_STORES, openTestHot, type TestHot } from "../../testing/hot-stores.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLog } from "../kernel/log.ts";
import { systemRandom } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { HotStore } from "../store/hot-store.ts";
import { createSessions, type SessionLink } from "./sessions.ts";
import { lastSeenKeys, readSeen } from "./store/last-seen-store.ts";
import { readSession } from "./store/session-store.ts";

const LINK: SessionLink = {
  send() {},
  sendText() {},
  unsentBytes: () => 0,
  whenDrained() {},
  close() {},
};

describe.each(HOT_STORES)("sessions, on %s", (kind) => {
  let store: TestHot;
  beforeAll(async () => {
    store = await openTestHot(kind);
  });
  afterAll(() => store.hot.close());

  const sessionsOver = (hot: HotStore, epoch: () => number) =>
    createSessions({
      tokenSessionsMax: 0,
      ...{ instanceId: "i1", hot, ownerTtlMs: 45_000, goneAfterMs: 600_000 },
      ...{ clock: systemClock, random: systemRandom, log: silentLog },
      db: { query: async () => ({ rows: [{ epoch: epoch() }], rowCount: 1 }) } as unknown as Db,
      onFoundAgain() {},
    });
  const seen = async () => {
    const page = { offset: 0, limit: 100 };
    const members = await readSeen(store.hot, lastSeenKeys.sessions(store.hot.prefix), page);
    return members.map(({ member }) => member);
  };

  test("a connect that is refused because Postgres is away leaves nothing behind", async () => {
    const { hot, ran } = recorded(store.hot);
    const sessions = sessionsOver(hot, () => {
      throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres" });
    });
    for (let n = 0; n < 5; n++)
      await expect(sessions.join({ tenant: "default" }, LINK)).rejects.toMatchObject({
        code: "DEPENDENCY_DOWN",
      });
    expect(ran).toEqual([]);
    expect(await seen()).toEqual([]);
  });

  test("a session is listed before its record is written, so that it is always deleted later", async () => {
    const { hot, ran } = recorded(store.hot);
    const session = await sessionsOver(hot, () => 7).join({ tenant: "default" }, LINK);
    expect(ran).toEqual(["touch", "open-session", "claim-owner"]);
    expect(await seen()).toContain(session.sessionId);
    expect(await readSession(store.hot, session.sessionId)).toMatchObject({ tenant: "default" });
    // A resumed session is listed too; a wrong token lists nothing.
    const resume = { sessionId: session.sessionId, resumeToken: session.resumeToken };
    const back = await sessionsOver(hot, () => 8).join({ tenant: "default", resume }, LINK);
    expect(back.sessionId).toBe(session.sessionId);
    ran.length = 0;
    const stolen = { ...resume, resumeToken: "x" };
    const refused = sessionsOver(hot, () => 9).join({ tenant: "default", resume: stolen }, LINK);
    await expect(refused).rejects.toMatchObject({ code: "UNAUTHENTICATED" });
    expect(ran).toEqual(["open-session"]);
  });
});

/** The names of the scripts that ran, in their order. */
function recorded(hot: HotStore): { hot: HotStore; ran: string[] } {
  const ran: string[] = [];
  const run: HotStore["run"] = (script, keys, args) => {
    ran.push(script.name);
    return hot.run(script, keys, args);
  };
  return { hot: { ...hot, run }, ran };
}
