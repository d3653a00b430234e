import { fsyncSync } from "node:fs";
import { PGlite, type PGliteOptions } from "@electric-sql/pglite";
import { NodeFS } from "@electric-sql/pglite/nodefs";
import { INT8_OID, parseInt8, parseTimestamp, TIMESTAMPTZ_OID } from "../db.ts";

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

/**
 * What one session needs. initdb writes the settings of a server with a hundred sessions, and all of that memory becomes
 * resident within minutes of work. The command line wins over postgresql.conf, so this holds for an old directory too.
 */
const MEMORY_SETTINGS = [
  ...["-c", "shared_buffers=8MB"],
  ...["-c", "max_connections=10", "-c", "max_wal_senders=0"],
];

/** Without `-F`, and with a file system that can sync, a commit is on the disk before it is acknowledged. */
export function optionsOf(directory: string): PGliteOptions {
  const startParams = PGlite.defaultStartParams.filter((param) => param !== "-F");
  return {
    fs: new SyncingNodeFs(directory),
    startParams: [
      ...startParams,
      ...["-c", "wal_sync_method=fsync"],
      ...MEMORY_SETTINGS,
      // What a checkpoint keeps of the log for reuse. With the defaults of a server that is up to a gigabyte.
      ...["-c", "min_wal_size=32MB", "-c", "max_wal_size=64MB"],
    ],
    parsers: { [INT8_OID]: parseInt8, [TIMESTAMPTZ_OID]: parseTimestamp },
  };
}
