import { appendFileSync, readFileSync } from "node:fs";

/**
 * What happened to one operation, in Jepsen's form. `invoke` opens it. `ok` took effect, `fail`
 * certainly did not. Everything else (a time-out, a lost connection, an unknown error) is `info`: it
 * may have taken effect, now or later, and a checker must allow for both.
 */
export interface HistoryEvent {
  process: number | string;
  type: "invoke" | "ok" | "fail" | "info";
  f: string;
  value: unknown;
}

export interface RecordedEvent extends HistoryEvent {
  index: number;
  /** Nanoseconds on the machine's monotonic clock, the same for all processes of the machine. */
  time: number;
}

export interface HistoryRecorder {
  record(event: HistoryEvent): void;
  /**
   * Records `invoke`, runs the operation, and records how it ended. `isRefusal` says which errors
   * prove that nothing happened; any other error is `info`. The error is thrown on.
   */
  run<T>(
    operation: { process: number | string; f: string; value: unknown },
    action: () => Promise<T>,
    isRefusal?: (error: unknown) => boolean,
  ): Promise<T>;
}

export function createHistory(file: string): HistoryRecorder {
  let index = 0;

  // One write per event, at once: several processes may share the file, and one may be killed.
  function record(event: HistoryEvent): void {
    const line = { index: index++, time: Number(process.hrtime.bigint()), ...event };
    appendFileSync(file, `${JSON.stringify(line)}\n`);
  }

  return {
    record,
    async run(operation, action, isRefusal = () => false) {
      record({ ...operation, type: "invoke" });
      try {
        const value = await action();
        record({ ...operation, type: "ok", value: value ?? null });
        return value;
      } catch (error) {
        const type = isRefusal(error) ? "fail" : "info";
        record({ ...operation, type, value: { ...asked(operation.value), error: String(error) } });
        throw error;
      }
    },
  };
}

/** In order of time. A last line cut short by a kill is left out. */
export function readHistory(file: string): RecordedEvent[] {
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  const events = lines.map((line) => JSON.parse(line) as RecordedEvent);
  return events.sort((a, b) => a.time - b.time || a.index - b.index);
}

function asked(value: unknown): object {
  return typeof value === "object" && value !== null ? value : { value };
}
