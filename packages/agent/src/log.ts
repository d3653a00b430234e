import type { ExecutorLog } from "./executor/contract.ts";

/** One thing that happened: `event` is what to search and alert by, `message` is for people. */
export type AgentLogLine = ExecutorLog;
export type AgentLog = (line: AgentLogLine) => void;

export const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;
export type AgentLogLevel = (typeof LOG_LEVELS)[number];

/** JSON lines on stderr, in the form of the server's: `time`, `level`, `event`, the ids, `msg`. */
export function createAgentLog(
  least: AgentLogLevel = "info",
  write: (line: string) => void = (line) => void process.stderr.write(line),
): AgentLog {
  return ({ level, event, message, details }) => {
    if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(least)) return;
    const time = new Date().toISOString();
    write(`${JSON.stringify({ level, time, event, ...details, msg: message })}\n`);
  };
}
