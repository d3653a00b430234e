import pino, { type DestinationStream, type LoggerOptions } from "pino";

/** What every log line says besides its sentence: what happened, as `noun.past-participle`, and to which ids. */
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

/** JSON lines on stderr by default: stdout belongs to the one line that tells where the server listens. */
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

export const silentLog: Log = createLog("silent");

// Synchronous: the last line before a crash is the one that matters, and a buffered one is lost with it.
function stderr(): DestinationStream {
  return pino.destination({ fd: 2, sync: true });
}
