import { EventEmitter } from "node:events";
import { Worker } from "node:worker_threads";
import { TenureError } from "@tenure/protocol";
import type { Result } from "../db.ts";
import { isUnavailable } from "../unavailable.ts";
import type { Answer, Ask, Notification } from "./pglite-worker.ts";

type AskWithoutId = Ask extends infer A ? (A extends Ask ? Omit<A, "id"> : never) : never;

/** Rejects with `DEPENDENCY_DOWN` when there is no answer within `limitMs`, or the thread ended meanwhile. */
export type AskThread = <Row>(ask: AskWithoutId, limitMs?: number) => Promise<Result<Row>>;

export interface PgliteThread {
  ask: AskThread;
  /** Emits the name of a channel after each NOTIFY on it. */
  notifications: EventEmitter;
  /** Resolves with the reason when the thread can answer no more: it ended, or its Postgres gave up (PANIC). */
  failed: Promise<string>;
  end(): Promise<void>;
}

interface Caller {
  resolve: (result: Result<unknown>) => void;
  reject: (error: unknown) => void;
}

/** Opens the database of `directory` in a thread of its own, or makes it. */
export async function startThread(
  directory: string,
  options: { statementTimeoutMs: number; onError?: ((error: unknown) => void) | undefined },
): Promise<PgliteThread> {
  const worker = new Worker(workerFile(), { workerData: { directory } });
  const waiting = new Map<number, Caller>();
  const notifications = new EventEmitter().setMaxListeners(0);
  let lastId = 0;
  let failure: TenureError<"DEPENDENCY_DOWN"> | undefined;
  let reportFailure: (reason: string) => void;
  const failed = new Promise<string>((resolve) => {
    reportFailure = resolve;
  });

  function fail(reason: string, cause?: unknown): void {
    failure ??= down(reason, cause);
    for (const { reject } of [...waiting.values()]) reject(failure);
    reportFailure(reason);
  }

  await new Promise<void>((resolve, reject) => {
    worker.once("message", () => resolve());
    worker.once("error", reject);
    worker.once("exit", () => reject(new Error("the embedded Postgres ended while it was opened")));
  });
  worker.on("error", (error) => {
    fail(`its thread failed: ${error instanceof Error ? error.message : String(error)}`, error);
    options.onError?.(error);
  });
  worker.on("exit", () => fail("its thread has ended"));
  worker.on("message", (answer: Answer | Notification) => {
    if ("notified" in answer) return void notifications.emit(answer.notified);
    const caller = waiting.get(answer.id);
    if ("error" in answer) {
      caller?.reject(errorOf(answer.error));
      // A server would end its process now. This one keeps spinning and answers nothing.
      if (answer.error.severity === "PANIC") fail(answer.error.message);
    } else caller?.resolve(answer);
  });

  const ask: AskThread = <Row>(request: AskWithoutId, limitMs = options.statementTimeoutMs) =>
    new Promise<Result<Row>>((resolve, reject) => {
      if (failure) return reject(failure);
      const id = ++lastId;
      const settle = (then: () => void) => {
        clearTimeout(timer);
        waiting.delete(id);
        then();
      };
      const timer = setTimeout(
        () => settle(() => reject(down(`no answer within ${limitMs} ms`))),
        limitMs,
      );
      waiting.set(id, {
        resolve: (result) => settle(() => resolve(result as Result<Row>)),
        reject: (error) => settle(() => reject(error)),
      });
      worker.postMessage({ ...request, id });
    });

  return { ask, notifications, failed, end: async () => void (await worker.terminate()) };
}

export const down = (reason: string, cause?: unknown): TenureError<"DEPENDENCY_DOWN"> =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "embedded postgres", reason }, { cause });

/** An error of the embedded Postgres by the same rule as one of a server: a full disk is not a bug. */
function errorOf(given: { message: string; code?: string }): Error {
  const error = Object.assign(new Error(given.message), given);
  return isUnavailable(given.code) ? down(given.message, error) : error;
}

// Tests run from source, where Node cannot start a `.ts` thread: they use the build of the same file.
function workerFile(): URL {
  const own = new URL("./pglite-worker.js", import.meta.url);
  return import.meta.url.endsWith(".ts")
    ? new URL("../../../dist/store/embedded/pglite-worker.js", import.meta.url)
    : own;
}
