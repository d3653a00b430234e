import { describe, expect, onTestFinished, test } from "vitest";
import { type Log, silentLog } from "../../kernel/log.ts";
import { createTracing } from "./tracing.ts";

describe("whether jobs are traced", () => {
  const KEY = Symbol.for("opentelemetry.js.api.1");
  const globals = globalThis as Record<symbol, unknown>;

  /** What is logged at the start with this registered, as an SDK does through its own copy of the API. */
  function logged(registered: object | undefined): object[] {
    const former = globals[KEY];
    onTestFinished(() => {
      globals[KEY] = former;
    });
    globals[KEY] = registered;
    const lines: object[] = [];
    createTracing({ ...silentLog, info: (line: object) => lines.push(line) } as unknown as Log);
    return lines;
  }

  test("tracing is off without an SDK, and the start logs it", () => {
    expect(logged(undefined)).toEqual([
      { event: "tracing.off", reason: "no OpenTelemetry SDK is registered" },
    ]);
  });

  test("tracing is off with an SDK on an older copy of the API, and the log has the reason", () => {
    expect(logged({ version: "1.2.0", trace: {} })).toEqual([
      {
        event: "tracing.off",
        reason: expect.stringContaining("another copy of @opentelemetry/api (1.2.0)"),
      },
    ]);
  });

  test("tracing is on with an SDK that samples out the first span", () => {
    const unsampled = {
      getTracer: () => ({ startSpan: () => ({ isRecording: () => false, end() {} }) }),
    };
    expect(logged({ version: "1.99.0", trace: unsampled })).toEqual([{ event: "tracing.on" }]);
  });
});
