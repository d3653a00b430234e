import type { EventRecord } from "@tenure/protocol";
import type { Tone } from "./tone.ts";

/** Tone of an event, by its name. Unknown events are neutral. */
export function eventTone({ event, code }: Pick<EventRecord, "event" | "code">): Tone {
  const [noun = "", what = ""] = event.split(".");
  if (BAD.has(what) || noun === "brake")
    return what === "released" && noun === "brake" ? "good" : "bad";
  if (WARN.has(what)) return "warn";
  if (GOOD.has(what)) return "good";
  return code ? "warn" : "idle";
}

const BAD = new Set(["lost", "crashed", "failed", "refused", "fenced", "engaged"]);
const WARN = new Set([
  "left",
  "released",
  "taken-over",
  "missed",
  "skipped",
  "doubled",
  "address-ignored",
]);
const GOOD = new Set(["joined", "claimed", "started", "confirmed"]);

/** The page of the subject. */
export function eventHref({ event, subject }: Pick<EventRecord, "event" | "subject">) {
  if (!subject || event.endsWith(".deleted")) return undefined;
  const [noun = ""] = event.split(".");
  const page = PAGES[noun];
  return page && `/${page}/${encodeURIComponent(subject)}`;
}

const PAGES: Partial<Record<string, string>> = {
  deployment: "deployments",
  daemon: "deployments",
  node: "nodes",
  lease: "signers",
  write: "signers",
  job: "jobs",
};
