import type { SocketClose } from "./socket.ts";

/** What `openBlockingSocket` and its thread send each other. */

export interface ThreadData {
  url: string;
  frameBytesMax: number;
  pingEveryMs: number;
  unsent: Int32Array;
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
