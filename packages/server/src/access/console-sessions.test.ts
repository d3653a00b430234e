import { TenureError } from "@tenure/protocol";
import { beforeEach, expect, test } from "vitest";
import { systemClock } from "../kernel/clock.ts";
import { systemRandom } from "../kernel/random.ts";
import type { Db } from "../store/db.ts";
import type { Sql } from "../store/sql.ts";
import { type ConsoleSessions, createConsoleSessions } from "./console-sessions.ts";
import { newSessionId } from "./session-id.ts";

const TOKEN = { name: "ops", sha256: "ab" };

let nowMs: number;
let rows: Map<unknown, typeof TOKEN>;
let asked: string[];
let isDown: boolean;
let sessions: ConsoleSessions;

beforeEach(() => {
  nowMs = 0;
  rows = new Map();
  asked = [];
  isDown = false;
  const clock = { monotonicMs: () => nowMs, sleep: systemClock.sleep } as Parameters<
    typeof createConsoleSessions
  >[0]["clock"];
  const options = {
    random: systemRandom,
    settings: { console_session_seconds: 60, console_idle_seconds: 60, offline_max_seconds: 40 },
  };
  sessions = createConsoleSessions({ db: { query: answer } as unknown as Db, clock, ...options });
});

/** As the table would, without its times. */
async function answer({ text, values }: Sql): Promise<object> {
  if (isDown) throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason: "away" });
  const [kind] = /insert|select key|select token|delete/.exec(text) ?? ["update"];
  asked.push(kind);
  if (kind === "select key") return { rows: [{ key: "the fleet's" }] };
  // `insert` has the surplus' hash and limit before its own values.
  if (text.includes("insert into")) rows.set(values[2], TOKEN);
  else if (kind === "delete") rows.delete(values[0]);
  const row = rows.get(values[0]);
  return {
    rows: kind === "select token" && row ? [{ ...row, unseen_ms: 0, rest_ms: 60_000 }] : [],
  };
}

test("a session is read once in five seconds, however many requests come", async () => {
  const id = await sessions.open(TOKEN);
  asked = [];
  const found = await Promise.all(Array.from({ length: 50 }, () => sessions.find([id])));
  expect(found).toEqual(Array(50).fill(TOKEN));
  nowMs = 4_999;
  await sessions.find([id]);
  expect(asked).toEqual(["select token"]);
  nowMs = 5_000;
  await sessions.find([id]);
  expect(asked).toEqual(["select token", "select token"]);
});

test("an id that this fleet did not make costs no query", async () => {
  await sessions.open(TOKEN);
  asked = [];
  for (let made = 0; made < 100; made++) {
    const invented = [newSessionId(systemRandom, "another key"), "short", "A".repeat(64)];
    expect(await sessions.find(invented)).toBeUndefined();
  }
  expect(asked).toEqual([]);
});

test("a session that ends during its query stays ended", async () => {
  const id = await sessions.open(TOKEN);
  const finding = sessions.find([id]);
  await sessions.end([id]);
  await finding;
  expect(await sessions.find([id])).toBeUndefined();
});

test("without the store no session is valid, and the error has a code", async () => {
  const id = await sessions.open(TOKEN);
  isDown = true;
  await expect(sessions.find([id])).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
  await expect(sessions.open(TOKEN)).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
  isDown = false;
  expect(await sessions.find([id])).toEqual(TOKEN);
});

test("at most ten thousand sessions are cached", async () => {
  const ids: string[] = [];
  for (let made = 0; made < 10_001; made++) {
    ids.push(await sessions.open(TOKEN));
    await sessions.find([ids.at(-1)!]);
  }
  asked = [];
  await sessions.find([ids.at(-1)!]);
  expect(asked).toEqual([]);
  await sessions.find([ids[0]!]);
  expect(asked).toEqual(["select token"]);
});
