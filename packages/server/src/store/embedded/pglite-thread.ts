import { EventEmitter } from "node:events";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { TenureError } from "@tenure/protocol";
import type { Result } from "../db.ts";
import { isUnavailable } from "../unavailable.ts";
import { builtFile } from "./built-file.ts";
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

/**
 * Limits the garbage that V8 lets gather in the thread before it collects. The memory of Postgres itself is
 * outside of the heap.
 */
const YOUNG_GENERATION_MB = 8;

/**
 * One compiler of WebAssembly instead of one for each core. Each takes memory for the largest functions of Postgres, and the
 * allocator keeps it for the thread it was given to. V8 reads this when it compiles; a version that does not know it goes on.
 */
const ONE_COMPILER = "--wasm-num-compilation-tasks=1";

/** Opens the database of `directory` in a thread of its own. */
export async function startThread(
  directory: string,
  options: { statementTimeoutMs: number; onError?: ((error: unknown) => void) | undefined },
): Promise<PgliteThread> {
  setFlagsFromString(ONE_COMPILER);
  const worker = new Worker(builtFile("pglite-worker.js"), {
    workerData: { directory },
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
  });
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
