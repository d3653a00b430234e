import { existsSync, fsyncSync, renameSync, rmSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { PGlite, type PGliteOptions } from "@electric-sql/pglite";
import { NodeFS } from "@electric-sql/pglite/nodefs";
import { INT8_OID, parseInt8, parseTimestamp, TIMESTAMPTZ_OID } from "../db.ts";

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

interface Attributes {
  mode?: number;
}

interface Emscripten {
  NODEFS: {
    node_ops: { setattr: (node: unknown, attributes: Attributes) => void };
    stream_ops: { fsync?: (stream: { nfd: number }) => number };
  };
}

const OTHERS = 0o077;

/**
 * Emscripten's NODEFS has no fsync and reports success without one; this gives it the missing operation. It also sets the
 * mode of each new file to 0666 whatever the umask is; this leaves it to its owner.
 */
class SyncingNodeFs extends NodeFS {
  override async init(...[pg, given]: Parameters<NodeFS["init"]>): ReturnType<NodeFS["init"]> {
    const made = await super.init(pg, given);
    made.emscriptenOpts.preRun?.push((module) => {
      const { node_ops, stream_ops } = (module as unknown as Emscripten).NODEFS;
      stream_ops.fsync = (stream) => {
        fsyncSync(stream.nfd);
        return 0;
      };
      const { setattr } = node_ops;
      node_ops.setattr = (node, { mode, ...others }) =>
        setattr(node, { ...others, ...(mode !== undefined && { mode: mode & ~OTHERS }) });
    });
    return made;
  }
}

const port = parentPort!;
// Listening before the first message keeps this thread's loop from running empty while WebAssembly is compiled.
// Node would then wait for V8's helpers, and one of those may be waiting for a collection in this very thread.
port.on("message", (ask: Ask) => void answer(ask));
const database = await openDatabase(workerData.directory as string);
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

/** Made beside and moved into place when complete: a first start that is killed leaves nothing half-made. */
async function openDatabase(directory: string): Promise<PGlite> {
  if (!existsSync(directory)) {
    const unfinished = `${directory}.unfinished`;
    rmSync(unfinished, { recursive: true, force: true });
    await (await PGlite.create(options(unfinished))).close();
    renameSync(unfinished, directory);
  }
  return PGlite.create(options(directory));
}

/** Without `-F`, and with a file system that can sync, a commit is on the disk before it is acknowledged. */
function options(directory: string): PGliteOptions {
  const startParams = PGlite.defaultStartParams.filter((param) => param !== "-F");
  return {
    fs: new SyncingNodeFs(directory),
    startParams: [
      ...startParams,
      ...["-c", "wal_sync_method=fsync"],
      // What a checkpoint keeps of the log for reuse. With the defaults of a server that is up to a gigabyte.
      ...["-c", "min_wal_size=32MB", "-c", "max_wal_size=64MB"],
    ],
    parsers: { [INT8_OID]: parseInt8, [TIMESTAMPTZ_OID]: parseTimestamp },
  };
}
