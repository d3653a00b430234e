import { join } from "node:path";
import {
  type CallResult,
  LOG_LINES_DEFAULT,
  LOG_LINES_MAX,
  type LogSelection,
  TenureError,
} from "@tenure/protocol";
import { formatPosition, type LogPosition, listLogFiles, parsePosition } from "./log-files.ts";
import { createNotifier, followLog, type LogFollower, type Notifier } from "./log-follower.ts";
import { jsonBytesOf, positionOfLast, readForward } from "./log-reader.ts";
import { createLogWriter, LOG_LIMITS, type LogLimits, type LogWriter } from "./log-writer.ts";

/** The logs of all children of this node, also of former ones. */
export interface Logs {
  /** Opens the log of a child. At most one writer per deployment may be open. */
  writer(deploymentId: string): LogWriter;
  read(selection: LogSelection): Promise<CallResult<"log.read">>;
  /** Passes the selected lines and then every new one on. Resolves when following has begun. */
  follow(selection: LogSelection, follower: LogFollower): Promise<void>;
}

export interface LogsOptions {
  directory: string;
  limits?: LogLimits | undefined;
  /** Whether a deployment is expected to have a log here: then an empty log is no error. */
  isKnown(deploymentId: string): boolean;
  /** Called when a read fails, and for the first of a series of failed writes. */
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
  const followers = new Map<string, Set<Notifier>>();
  function directoryOf(deploymentId: string): string {
    // The last check before the id becomes part of a path.
    if (!/^[0-9a-f-]{36}$/.test(deploymentId))
      throw new TenureError("INVALID_REQUEST", { reason: "deployment_id: must be a UUID" });
    return join(directory, deploymentId);
  }

  /** Returns the numbers of the files, newest first. Throws when this node has no such log. */
  async function filesOf(deploymentId: string): Promise<number[]> {
    const files = await listLogFiles(directoryOf(deploymentId));
    if (files.length === 0 && !isKnown(deploymentId))
      throw new TenureError("NOT_FOUND", { what: "the log of deployment", id: deploymentId });
    return files;
  }

  /** Returns where to begin, and the last file to read for the end of one. */
  async function rangeFor(selection: LogSelection, files: readonly number[]): Promise<Range> {
    const { deployment_id, lines = LOG_LINES_DEFAULT, file, from } = selection;
    if (from !== undefined) return { from: positionOf(from, files) };
    const newest = files[file ?? 0];
    if (newest === undefined && file)
      throw new TenureError("NOT_FOUND", { what: "log file", id: String(file) });
    // Without a file the last lines are those of all files: the newest may have few.
    const numbers = file === undefined ? files : files.slice(file, file + 1);
    const last = { numbers, lines, bytesMax: LAST_BYTES_MAX };
    const position = await positionOfLast(directoryOf(deployment_id), last);
    return { from: position ?? { number: newest ?? 1, offset: 0 }, lastNumber: newest };
  }

  return {
    writer: (deploymentId) =>
      createLogWriter({
        directory: directoryOf(deploymentId),
        limits,
        onWritten() {
          for (const written of followers.get(deploymentId) ?? []) written.notify();
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
        next: formatPosition(next),
        files: files.map((_, index) => index),
      };
    },
    async follow(selection, follower) {
      const { deployment_id } = selection;
      const written = createNotifier();
      const { from } = await rangeFor(selection, await filesOf(deployment_id));
      const all = followers.get(deployment_id) ?? new Set();
      followers.set(deployment_id, all.add(written));
      const remove = (): void => {
        all.delete(written);
        if (all.size === 0) followers.delete(deployment_id);
      };
      void followLog({ directory: directoryOf(deployment_id), from, written }, follower)
        .catch((error: Error) => onFailed(deployment_id, error))
        .finally(remove);
    },
  };
}

interface Range {
  from: LogPosition;
  lastNumber?: number | undefined;
}

function positionOf(text: string, files: readonly number[]): LogPosition {
  const position = parsePosition(text);
  if (!position)
    throw new TenureError("INVALID_REQUEST", {
      reason: "from: must be a position that a read returned",
    });
  // A log that was deleted starts again with file 1, so a position beyond it means its beginning.
  const [newest = position.number] = files;
  return position.number <= newest ? position : { number: files.at(-1) ?? 1, offset: 0 };
}

function newestWithin(lines: readonly string[], jsonBytesMax: number): string[] {
  let jsonBytes = 0;
  const tooOld = lines.findLastIndex((line) => {
    jsonBytes += jsonBytesOf(line);
    return jsonBytes > jsonBytesMax;
  });
  return lines.slice(tooOld + 1);
}
