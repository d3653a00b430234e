import { randomBytes } from "node:crypto";
import { until } from "@tenure/testing/until";
import { describe, expect, onTestFinished, test } from "vitest";
import { HOT_STORES, openTestHot, openTestPeer } from "../../../testing/hot-stores.ts";
import { createManualClock } from "../../../testing/manual-clock.ts";
import { silentLog } from "../../kernel/log.ts";
import type { HotStore } from "../../store/hot-store.ts";
import type { JobsParts } from "../parts.ts";
import { opensNotice } from "../store/storm-store.ts";
import { createStormGuard } from "./storm-guard.ts";

const WINDOW_MS = 5_000;

describe.each(HOT_STORES)("the storm guard: %s", (kind) => {
  test("a service that is unavailable is logged once per window by all instances together", async () => {
    const { hot, advance } = await openTestHot(kind);
    onTestFinished(() => hot.close());
    expect(await opensNotice(hot, "asr", WINDOW_MS)).toBe(true);
    expect(await opensNotice(hot, "asr", WINDOW_MS)).toBe(false);
    expect(await opensNotice(hot, "tts", WINDOW_MS)).toBe(true);
    advance(WINDOW_MS);
    expect(await opensNotice(hot, "asr", WINDOW_MS)).toBe(true);
  });

  test("two instances that get reports together write one line", async () => {
    const { hot } = await openTestHot(kind);
    const other = kind === "memory" ? hot : await openTestPeer(kind, hot.prefix);
    onTestFinished(async () => {
      await hot.close();
      if (other !== hot) await other.close();
    });
    const lines: string[] = [];
    let answered = 0;
    const guardOf = (store: HotStore) => {
      const parts = {
        hot: {
          prefix: store.prefix,
          run: (...call: Parameters<HotStore["run"]>) =>
            store.run(...call).finally(() => {
              answered += 1;
            }),
        },
        settings: {
          storm: {
            ...{ unavailableTtlMs: 60_000, debounceWindowMs: WINDOW_MS },
            ...{ reportWindowMs: 10_000, reportsMax: 30 },
          },
        },
        nodePool: { mark() {} },
        metrics: { stormReported() {} },
        clock: createManualClock(),
        log: { ...silentLog, warn: ({ event }: { event: string }) => lines.push(event) },
      };
      return createStormGuard(parts as unknown as JobsParts);
    };
    const nodeId = `N${randomBytes(16).toString("hex")}`;
    const guards = [guardOf(hot), guardOf(other)];
    for (const guard of [...guards, ...guards]) await guard.unavailable(nodeId, "asr");
    // Four marks, and one question of each instance about its line.
    await until(() => answered === 6, { what: "both to have asked" });
    expect(lines).toEqual(["service.unavailable"]);
  });
});
