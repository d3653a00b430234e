import { setFlagsFromString } from "node:v8";
import { isMainThread, Worker, workerData } from "node:worker_threads";
import { PGlite } from "@electric-sql/pglite";
import { optionsOf } from "./pglite-options.ts";

// The process that makes a database, in a directory that does not exist yet. It ends when that is done: initdb takes some
// 300 MB, and the memory of WebAssembly never shrinks. The work is in a thread, so that the main thread can see at any
// moment that the server is gone; nothing else would end this process then.

const WASI_ENOSPC = 51;

if (isMainThread) {
  // It ends within seconds: optimizing Postgres would take longer than the optimized code saves.
  setFlagsFromString("--no-wasm-tier-up");
  setFlagsFromString("--no-wasm-dynamic-tiering");
  const endAtOnce = () => process.kill(process.pid, "SIGKILL");
  process.once("disconnect", endAtOnce);
  if (!process.connected) endAtOnce();
  const worker = new Worker(new URL(import.meta.url), { workerData: process.argv[2] });
  const fail = (error: string) => process.send?.({ error }, () => process.exit(1));
  worker.once("error", (error) => fail(error instanceof Error ? error.message : String(error)));
  // A Postgres that gives up ends its thread with a code and without an error.
  worker.once("exit", (code) => {
    if (code === 0) process.exit(0);
    fail(`initdb ended with exit code ${code}`);
  });
} else {
  try {
    await (await PGlite.create(optionsOf(workerData as string))).close();
  } catch (error) {
    throw readable(error);
  }
}

/** Errors of the file system of WebAssembly are no `Error`, and have a number of its own list. */
function readable(error: unknown): unknown {
  const { errno } = error as { errno?: number };
  if (error instanceof Error || errno === undefined) return error;
  const reason = errno === WASI_ENOSPC ? "no space left on the disk" : `file system error ${errno}`;
  return new Error(`could not make the embedded database: ${reason}`);
}
