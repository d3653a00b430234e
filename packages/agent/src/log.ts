import type { ExecutorLog } from "./executor/contract.ts";

/** A log line: `event` is stable, for searches and alerts; `message` is for people. */
export type AgentLogLine = ExecutorLog;
export type AgentLog = (line: AgentLogLine) => void;

export const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;
export type AgentLogLevel = (typeof LOG_LEVELS)[number];

/** Writes JSON lines to stderr in the server's format: `time`, `level`, `event`, the ids, `msg`. */
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

/** Drops lines that cannot be written: a full disk or a stopped reader must not end the agent. */
function stderrLines(): (line: string) => void {
  process.stderr.on("error", () => {});
  return (line) => {
    if (process.stderr.writableLength < UNSENT_BYTES_MAX) process.stderr.write(line);
  };
}
