import * as z from "zod";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { jobKeys } from "./keys.ts";

const markScript = defineScript({
  file: new URL("./lua/mark-unavailable.lua", import.meta.url),
  keys: ["unavailable", "reports"],
  args: z.object({
    service: z.string(),
    ttl_ms: z.int().positive(),
    window_ms: z.int().positive(),
    reports_max: z.int().positive(),
  }),
  reply: z.tuple([z.enum(["marked", "already", "limited"])]),
}).inMemory((space, keys, { service, ttl_ms, window_ms, reports_max }) => {
  const now = space.nowMs();
  const window = space.hash(keys.reports);
  if (now - Number(window.get("since_ms") ?? 0) >= window_ms)
    window.set("since_ms", String(now)).set("count", "0");
  const count = Number(window.get("count"));
  if (count >= reports_max) return ["limited"];
  window.set("count", String(count + 1));
  space.expire(keys.reports, window_ms * 2);
  const marks = space.scores(keys.unavailable);
  const already = (marks.get(service) ?? 0) > now;
  marks.set(service, now + ttl_ms);
  space.expire(keys.unavailable, ttl_ms * 2);
  return [already ? "already" : "marked"];
});

const noticeScript = defineScript({
  file: new URL("./lua/open-notice.lua", import.meta.url),
  keys: ["notice"],
  args: z.object({ window_ms: z.int().positive() }),
  reply: z.tuple([z.enum(["opened", "open"])]),
}).inMemory((space, { notice }, { window_ms }) => {
  const now = space.nowMs();
  if (now < Number(space.get(notice) ?? 0)) return ["open"];
  space.set(notice, String(now + window_ms), window_ms);
  return ["opened"];
});

/** A node's `MODEL_NOT_AVAILABLE`, and its limits. */
export interface UnavailableReport {
  nodeId: string;
  service: string;
  /** How long the node is left out for this service. */
  ttlMs: number;
  /** At most `reportsMax` reports of one node mark in this time; the job is retried all the same. */
  windowMs: number;
  reportsMax: number;
}

/** From now on `reserveSlots` answers `unavailable` for it, on every instance. `already`: the mark is renewed. */
export async function markUnavailable(
  hot: HotStore,
  report: UnavailableReport,
): Promise<"marked" | "already" | "limited"> {
  const keys = {
    unavailable: jobKeys.unavailable(hot.prefix, report.nodeId),
    reports: jobKeys.reports(hot.prefix, report.nodeId),
  };
  const [outcome] = await hot.run(markScript, keys, {
    service: report.service,
    ttl_ms: report.ttlMs,
    window_ms: report.windowMs,
    reports_max: report.reportsMax,
  });
  return outcome;
}

/** Whether this instance logs about the service in this window: `true` for one instance.*/
export async function opensNotice(
  hot: HotStore,
  service: string,
  windowMs: number,
): Promise<boolean> {
  const notice = jobKeys.notice(hot.prefix, service);
  const [outcome] = await hot.run(noticeScript, { notice }, { window_ms: windowMs });
  return outcome === "opened";
}
