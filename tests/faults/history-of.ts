import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type RecordedEvent, readHistory } from "@tenure/testing/history";
import type { Scene } from "./workload.ts";

/** Starts and stops of every program of a run, whatever its workload. */
export const PROGRAMS_FILE = "programs.jsonl";

export const programsOf = ({ directory }: Pick<Scene, "directory">): RecordedEvent[] =>
  readHistory(join(directory, PROGRAMS_FILE));

/** What all programs of a workload have recorded, in order of time. */
export function historyOf({ workload, directory }: Scene): RecordedEvent[] {
  const files = readdirSync(directory).filter(
    (name) => name.startsWith(`${workload}.`) && name.endsWith(".jsonl"),
  );
  const events = files.flatMap((name) => readHistory(join(directory, name)));
  return events.sort((a, b) => a.time - b.time || a.index - b.index);
}
