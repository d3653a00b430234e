import { parentPort, workerData } from "node:worker_threads";
import { PGlite } from "@electric-sql/pglite";
import { optionsOf } from "./pglite-options.ts";

// The thread the embedded Postgres lives in. On the main thread its statements would stop every timer and
// socket of the server while they run: of 319 ticks 2 came through under 5,000 updates.

export type Ask =
  | { id: number; kind: "query"; text: string; values: readonly unknown[] }
  | { id: number; kind: "script"; text: string }
  | { id: number; kind: "listen"; channel: string }
  | { id: number; kind: "close" };

export type Answer =
  | { id: number; rows: unknown[]; rowCount: number }
  | { id: number; error: { message: string; code?: string; severity?: string } };

export interface Notification {
  notified: string;
}

const port = parentPort!;
// Listening before the first message keeps this thread's loop from running empty while WebAssembly is compiled.
// Node would then wait for V8's helpers, and one of those may be waiting for a collection in this very thread.
port.on("message", (ask: Ask) => void answer(ask));
const database = await PGlite.create(optionsOf(workerData.directory as string));
port.postMessage("ready");

async function answer(ask: Ask): Promise<void> {
  try {
    port.postMessage({ id: ask.id, ...(await perform(ask)) } satisfies Answer);
  } catch (error) {
    const { message, code, severity } = error as Error & { code?: string; severity?: string };
    const reported = { message, ...(code && { code }), ...(severity && { severity }) };
    port.postMessage({ id: ask.id, error: reported } satisfies Answer);
  }
}

async function perform(ask: Ask): Promise<{ rows: unknown[]; rowCount: number }> {
  switch (ask.kind) {
    case "query": {
      const result = await database.query(ask.text, [...ask.values]);
      return { rows: result.rows, rowCount: result.affectedRows || result.rows.length };
    }
    case "script":
      await database.exec(ask.text);
      return { rows: [], rowCount: 0 };
    case "listen":
      await database.listen(ask.channel, () =>
        port.postMessage({ notified: ask.channel } satisfies Notification),
      );
      return { rows: [], rowCount: 0 };
    case "close":
      await database.close();
      return { rows: [], rowCount: 0 };
  }
}
