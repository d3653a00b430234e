import { Worker } from "node:worker_threads";
import { LINK_LIMITS } from "./link.ts";
import type { OpenSocket, SocketClose } from "./socket.ts";
import type { TlsFiles } from "./tls.ts";

// The messages between `openBlockingSocket` and its thread.

export interface ThreadData {
  url: string;
  frameBytesMax: number;
  pingEveryMs: number;
  unsent: Int32Array;
  tls: TlsFiles | undefined;
}

export type ToThread =
  | { kind: "send"; text: string }
  | { kind: "close"; code: number; reason: string }
  | { kind: "terminate" }
  | { kind: "awake" };

export type FromThread =
  | { kind: "probe" | "open" | "binary" }
  | { kind: "text"; text: string }
  | { kind: "closed"; close: SocketClose };

/**
 * Opens a socket in a thread of its own, for a process whose main thread may be busy for longer than the server waits. The
 * thread pings, answers pings and repeats heartbeats meanwhile; it ends with its socket. The socket has no `ping`: after
 * a long run the main thread could not distinguish its own silence from that of the server.
 */
export const openBlockingSocket: OpenSocket = (url, { frameBytesMax, tls, on }) => {
  // Bytes on their way to the thread, and bytes in the send buffer of its socket.
  const unsent = new Int32Array(new SharedArrayBuffer(8));
  const workerData: ThreadData = {
    ...{ url, frameBytesMax, unsent, tls },
    pingEveryMs: LINK_LIMITS.pingEveryMs,
  };
  // Some flags of the process, such as --input-type, keep a thread from starting.
  const thread = new Worker(threadFile(), { workerData, execArgv: [] });
  const post = (message: ToThread) => thread.postMessage(message);
  let isClosed = false;

  function closed(close: SocketClose): void {
    if (isClosed) return;
    isClosed = true;
    on.closed(close);
  }

  thread.on("message", (message: FromThread) => {
    switch (message.kind) {
      case "probe":
        return post({ kind: "awake" });
      case "open":
        return on.open();
      case "text":
        return on.text(message.text);
      case "binary":
        return on.binary();
      case "closed":
        return closed(message.close);
    }
  });
  thread.on("error", (error) => closed({ code: 1006, reason: String(error) }));
  thread.on("exit", () => closed({ code: 1006, reason: "the socket thread has ended" }));

  return {
    send(text) {
      Atomics.add(unsent, 0, text.length);
      post({ kind: "send", text });
    },
    unsentBytes: () => Atomics.load(unsent, 0) + Atomics.load(unsent, 1),
    close: (code, reason) => post({ kind: "close", code, reason }),
    terminate: () => post({ kind: "terminate" }),
  };
};

// Tests run from source, where Node cannot start a `.ts` thread: they use the compiled file.
function threadFile(): URL {
  return import.meta.url.endsWith(".ts")
    ? new URL("../../dist/connection/blocking-thread.js", import.meta.url)
    : new URL("./blocking-thread.js", import.meta.url);
}
