import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type RecordedEvent, readHistory } from "../support/history.ts";
import type { Scene } from "./workload.ts";

/** What all programs of a workload have recorded, in order of time. */
export function historyOf({ workload, directory }: Scene): RecordedEvent[] {
  const files = readdirSync(directory).filter(
    (name) => name.startsWith(`${workload}.`) && name.endsWith(".jsonl"),
  );
  const events = files.flatMap((name) => readHistory(join(directory, name)));
  return events.sort((a, b) => a.time - b.time || a.index - b.index);
}
