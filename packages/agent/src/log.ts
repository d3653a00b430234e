import type { ExecutorLog } from "./executor/contract.ts";

/** One thing that happened: `event` is what to search and alert by, `message` is for people. */
export type AgentLogLine = ExecutorLog;
export type AgentLog = (line: AgentLogLine) => void;

export const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;
export type AgentLogLevel = (typeof LOG_LEVELS)[number];

/** JSON lines on stderr, in the form of the server's: `time`, `level`, `event`, the ids, `msg`. */
export function createAgentLog(
  least: AgentLogLevel = "info",
  write: (line: string) => void = stderrLines(),
): AgentLog {
  return ({ level, event, message, details }) => {
    if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(least)) return;
    const time = new Date().toISOString();
    write(`${JSON.stringify({ level, time, event, ...details, msg: message })}\n`);
  };
}

const UNSENT_BYTES_MAX = 1_048_576;

/** A line that cannot be written is dropped: a full disk, or a reader that ended or stands still, must not end the agent. */
function stderrLines(): (line: string) => void {
  process.stderr.on("error", () => {});
  return (line) => {
    if (process.stderr.writableLength < UNSENT_BYTES_MAX) process.stderr.write(line);
  };
}
