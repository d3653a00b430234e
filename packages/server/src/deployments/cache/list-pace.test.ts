import { matchWhole } from "@tenure/protocol/pattern";
import { expect, test } from "vitest";
import type { DeploymentRow } from "../deployment-row.ts";
import { createDeploymentCache } from "./deployment-cache.ts";
import { answerList, listParts } from "./list-delta.ts";
import { createListPace } from "./list-pace.ts";

const SOCKETS = 3_000;
const ROWS = 5_000;

const rowOf = (nth: number): DeploymentRow => ({
  id: `00000000-0000-4000-8000-${String(nth).padStart(12, "0")}`,
  ...{ name: `deployment-${nth}`, package_name: "web", package_version: "1.0.0", command: "" },
  ...{ args: [], env: {}, type: "deployment", address: "", enabled: true, selector: {} },
  ...{ lost_after_ms: 0, generation: 1, revision: 1, moving_to: "", move_state: "" },
  ...{ created_at: new Date(0), updated_at: new Date(0) },
});

/** The turns of the event loop until `condition` holds. */
async function turnsUntil(condition: () => boolean): Promise<number> {
  for (let turns = 0; ; turns++) {
    if (condition()) return turns;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("3,000 sockets that list 5,000 rows hold a share of 64 MiB each, or 32 KiB, and get every row in the end", {
  timeout: 60_000,
}, async () => {
  const cache = createDeploymentCache();
  for (let nth = 0; nth < ROWS; nth++) cache.put(rowOf(nth));
  const pace = createListPace();

  /** One answer. Its bytes are held until `written` is called. */
  async function list(nth: number, link: object, revision?: string) {
    const reader = {
      ...{ address: `node-${nth}`, labels: {}, trusted_package_regexp: ".*" },
      ...{ custom_command: false, claim_policy: "deployment_count" },
    };
    const { answer, written } = await pace.answer(link, (answerBytesMax) =>
      answerList({
        ...{ cache, origin: "i", reader, revision, answerBytesMax },
        ...{ matches: matchWhole, samples: () => ({}) },
      }),
    );
    const bytes = listParts(answer).reduce((sum, { length }) => sum + length, 0);
    return { ...answer, bytes, written };
  }

  const links = Array.from({ length: SOCKETS }, () => ({}));
  // No socket takes anything until all have an answer: as many bytes as can be held at a time.
  const first = await Promise.all(links.map((link, nth) => list(nth, link)));
  const held = first.reduce((sum, { bytes }) => sum + bytes, 0);
  // 97 MiB; 1.5 GiB with 512 KiB each.
  expect(held).toBeLessThan(SOCKETS * 33 * 1_024);
  for (const { written } of first) written();

  let { items, revision, more } = first[0]!;
  for (let rows = items.length; more; rows += items.length) {
    const next = await list(0, links[0]!, revision);
    next.written();
    ({ items, revision, more } = next);
    if (!more) expect(rows + items.length).toBe(ROWS);
  }
});

test("a single reader gets 512 KiB, and its next answer is written when its socket has taken the former", async () => {
  const pace = createListPace();
  const reader = {};
  const first = await pace.answer(reader, (bytesMax) => bytesMax);
  expect(first.answer).toBe(512 * 1_024);
  let isSecond = false;
  const second = pace.answer(reader, () => {
    isSecond = true;
  });
  const { written } = await pace.answer({}, () => undefined);
  written();
  expect(isSecond).toBe(false);
  first.written();
  await second;
  expect(isSecond).toBe(true);
});

test("an answer that cannot be written does not hold up the next", async () => {
  const pace = createListPace();
  const reader = {};
  const fail = () => {
    throw new Error("the cache is broken");
  };
  await expect(pace.answer(reader, fail)).rejects.toThrow("the cache is broken");
  await expect(pace.answer(reader, () => "next")).resolves.toMatchObject({ answer: "next" });
});

test("the event loop serves others between the answers", async () => {
  const pace = createListPace();
  const endMs = (ms: number) => {
    const end = performance.now() + ms;
    while (performance.now() < end);
  };
  const answers = Array.from({ length: 10 }, () => pace.answer({}, () => endMs(6)));
  let isDone = false;
  void Promise.all(answers).then(() => {
    isDone = true;
  });
  // Each takes longer than a slice, so each has a turn of its own.
  expect(await turnsUntil(() => isDone)).toBeGreaterThanOrEqual(10);
});
