import pino, { type DestinationStream, type LoggerOptions } from "pino";

/** The fields of a log line: the event as `noun.past-participle`, and the ids it is about. */
export interface LogFields {
  event: `${string}.${string}`;
  [field: string]: unknown;
}

type Write = (fields: LogFields, sentence: string) => void;

export interface Log {
  debug: Write;
  info: Write;
  warn: Write;
  error: Write;
  child(fields: Record<string, unknown>): Log;
}

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

/** JSON lines on stderr by default: stdout has the one line with the URL of the server. */
export function createLog(level: LogLevel, destination: DestinationStream = stderr()): Log {
  const options: LoggerOptions = {
    level,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    serializers: { error: pino.stdSerializers.err },
    base: null,
  };
  return pino(options, destination);
}

export const silentLog: Log = createLog("silent", { write() {} });

const UNSENT_BYTES_MAX = 1_048_576;

/**
 * Node writes files and terminals synchronously, and to a pipe at once while there is room in it: the last line before a
 * crash is not lost. A line that cannot be written is dropped: a full disk, or a reader that ended or stands still, must
 * not end the server.
 */
function stderr(): DestinationStream {
  process.stderr.on("error", () => {});
  return {
    write(line) {
      if (process.stderr.writableLength < UNSENT_BYTES_MAX) process.stderr.write(line);
    },
  };
}
