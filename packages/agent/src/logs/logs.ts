import { join } from "node:path";
import {
  type CallResult,
  LOG_LINES_DEFAULT,
  LOG_LINES_MAX,
  type LogSelection,
  TenureError,
} from "@tenure/protocol";
import { formatPlace, type LogPlace, listLogFiles, parsePlace } from "./log-files.ts";
import { type Bell, createBell, followLog, type LogFollower } from "./log-follower.ts";
import { jsonBytesOf, placeOfLast, readForward } from "./log-reader.ts";
import { createLogWriter, LOG_LIMITS, type LogLimits, type LogWriter } from "./log-writer.ts";

/** The logs of all children of this node, those of former ones too. */
export interface Logs {
  /** Where a child's lines go. One at a time per deployment. */
  writer(deploymentId: string): LogWriter;
  read(selection: LogSelection): Promise<CallResult<"log.read">>;
  /** Gives the lines asked for and then every new one. Resolves when following has begun. */
  follow(selection: LogSelection, follower: LogFollower): Promise<void>;
}

export interface LogsOptions {
  directory: string;
  limits?: LogLimits | undefined;
  /** Whether this node has, or should have, a log of it: an empty one is no error. */
  isKnown(deploymentId: string): boolean;
  /** Writing or reading fails; of writing it is told once until it works again. */
  onFailed(deploymentId: string, error: Error): void;
}

/** An answer is one frame of at most 1 MiB. */
const ANSWER_JSON_BYTES_MAX = 512 * 1024;
/** How far back "the last lines" may reach. */
const LAST_BYTES_MAX = 1024 * 1024;

export function createLogs({
  directory,
  limits = LOG_LIMITS,
  isKnown,
  onFailed,
}: LogsOptions): Logs {
  const bells = new Map<string, Set<Bell>>();
  function directoryOf(deploymentId: string): string {
    // It becomes part of a path. The caller has parsed it; nothing else stands between a request and the disk.
    if (!/^[0-9a-f-]{36}$/.test(deploymentId))
      throw new TenureError("INVALID_REQUEST", { reason: "deployment_id is no id" });
    return join(directory, deploymentId);
  }

  /** Numbers of the files, newest first. Throws when this node has no such log. */
  async function filesOf(deploymentId: string): Promise<number[]> {
    const files = await listLogFiles(directoryOf(deploymentId));
    if (files.length === 0 && !isKnown(deploymentId))
      throw new TenureError("NOT_FOUND", { what: "the log of deployment", id: deploymentId });
    return files;
  }

  /** Where to begin, and the last file to read when it is only about the end of one. */
  async function rangeFor(selection: LogSelection, files: readonly number[]): Promise<Range> {
    const { deployment_id, lines = LOG_LINES_DEFAULT, file, from } = selection;
    if (from !== undefined) return { from: placeNamed(from, files) };
    const newest = files[file ?? 0];
    if (newest === undefined && file)
      throw new TenureError("NOT_FOUND", { what: "log file", id: String(file) });
    // The file being written may have begun a moment ago: unless one is named, the last lines are those of all files.
    const numbers = file === undefined ? files : files.slice(file, file + 1);
    const last = { numbers, lines, bytesMax: LAST_BYTES_MAX };
    const place = await placeOfLast(directoryOf(deployment_id), last);
    return { from: place ?? { number: newest ?? 1, offset: 0 }, lastNumber: newest };
  }

  return {
    writer: (deploymentId) =>
      createLogWriter({
        directory: directoryOf(deploymentId),
        limits,
        onWritten() {
          for (const bell of bells.get(deploymentId) ?? []) bell.ring();
        },
        onFailed: (error) => onFailed(deploymentId, error),
      }),
    async read(selection) {
      const { deployment_id } = selection;
      const files = await filesOf(deployment_id);
      const { from, lastNumber } = await rangeFor(selection, files);
      const isTail = selection.from === undefined;
      const { lines, next } = await readForward(directoryOf(deployment_id), from, {
        linesMax: selection.lines ?? (isTail ? LOG_LINES_DEFAULT : LOG_LINES_MAX),
        jsonBytesMax: isTail ? Number.POSITIVE_INFINITY : ANSWER_JSON_BYTES_MAX,
        lastNumber,
      });
      return {
        lines: isTail ? newestWithin(lines, ANSWER_JSON_BYTES_MAX) : lines,
        next: formatPlace(next),
        files: files.map((_, index) => index),
      };
    },
    async follow(selection, follower) {
      const { deployment_id } = selection;
      const bell = createBell();
      const { from } = await rangeFor(selection, await filesOf(deployment_id));
      const all = bells.get(deployment_id) ?? new Set();
      bells.set(deployment_id, all.add(bell));
      const forget = (): void => {
        all.delete(bell);
        if (all.size === 0) bells.delete(deployment_id);
      };
      void followLog({ directory: directoryOf(deployment_id), from, bell }, follower)
        .catch((error: Error) => onFailed(deployment_id, error))
        .finally(forget);
    },
  };
}

interface Range {
  from: LogPlace;
  lastNumber?: number | undefined;
}

function placeNamed(text: string, files: readonly number[]): LogPlace {
  const place = parsePlace(text);
  if (!place) throw new TenureError("INVALID_REQUEST", { reason: "from is no position of a log" });
  // A log that was removed begins anew with its first file.
  const [newest = place.number] = files;
  return place.number <= newest ? place : { number: files.at(-1) ?? 1, offset: 0 };
}

function newestWithin(lines: readonly string[], jsonBytesMax: number): string[] {
  let jsonBytes = 0;
  const tooOld = lines.findLastIndex((line) => {
    jsonBytes += jsonBytesOf(line);
    return jsonBytes > jsonBytesMax;
  });
  return lines.slice(tooOld + 1);
}
