import type { Duplex } from "node:stream";
import {
  BAD_FRAMES_MAX,
  CLOSE_CODES,
  type CloseCode,
  isTenureError,
  JobId,
  RequestId,
  TenureError,
  toErrorMessage,
} from "@tenure/protocol";
import type { RawData, WebSocket } from "ws";
import { createFramePace } from "./frame-pace.ts";
import { watchLiveness } from "./socket-liveness.ts";

export interface FrameLimits {
  /** Bytes that may wait to be sent before the reader counts as too slow. */
  unsentBytesMax: number;
  /** Frames read per second. Beyond it reading pauses; frames that were received already are still handled. */
  framesPerSecondMax: number;
  pingIntervalMs: number;
}

export const FRAME_LIMITS: FrameLimits = {
  unsentBytesMax: 8 * 1_024 * 1_024,
  // A worker sends three frames per job: this is some 15,000 jobs a second over one socket.
  framesPerSecondMax: 50_000,
  pingIntervalMs: 5_000,
};

/** Messages that may wait for the one before them. Beyond it reading pauses; no message is dropped. */
const QUEUE_MAX = 256;
const CLOSE_LIMIT_MS = 2_000;
/** RFC 6455: what an endpoint reports when no close frame was received. */
const NO_CLOSE_FRAME = 1_006;
/** Where no event reports that the buffer is empty. */
const DRAIN_POLL_MS = 10;

/** A socket that carries messages of one protocol. */
export interface MessageSocket<Out> {
  send(message: Out): void;
  /**
   * Sends a message that is JSON text already: a payload is not parsed and rendered again. Calls `written` once, when it
   * has left the process or never will.
   */
  sendText(message: string | Buffer, written?: () => void): void;
  /** Bytes that were given to the socket and have not left the process. */
  unsentBytes(): number;
  /** Calls back once, when all of them have left. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
  /** Pauses and resumes reading: TCP then slows the sender down. */
  pauseReading(isPaused: boolean): void;
  /** Whether the other end answers a ping within `limitMs`. */
  ping(limitMs: number): Promise<boolean>;
}

export interface MessageHandlers<In> {
  /** Called with one message after another, in the order of arrival. */
  receive(message: In): Promise<void> | undefined | void;
  /** Handles a message that need not wait for those before it. False: hand it to `receive`. */
  receiveAtOnce?(message: In): boolean;
  /** Called once. */
  closed(how: Closed): void;
}

export interface Closed {
  /** The other end stopped answering; no close, FIN or reset came from it. */
  silently: boolean;
  /** The connection ended without a close frame from the other end: a reset, a dead process, a proxy that restarted. */
  abruptly: boolean;
}

export interface MessageSocketOptions<In> {
  /** Parses a text frame; throws `INVALID_MESSAGE`. */
  parse: (frame: string) => In;
  handlers: MessageHandlers<In>;
  limits?: FrameLimits | undefined;
  /**
   * Every frame of the other end counts as a sign of life, not only its pongs: on a slow line a ping waits behind
   * megabytes of results.
   */
  anyFrameIsLife?: boolean | undefined;
  /** The stream under the WebSocket; with it the frames of one tick are one write. */
  stream?: Duplex | undefined;
}

/**
 * Turns a WebSocket into messages. Each frame is parsed and checked here, once. A bad frame is answered with an error; the
 * third one closes this socket. A reader that does not read is disconnected before its backlog costs memory.
 */
export function openMessageSocket<In, Out>(
  socket: WebSocket,
  options: MessageSocketOptions<In>,
): MessageSocket<Out> {
  const { parse, handlers, limits = FRAME_LIMITS, stream, anyFrameIsLife } = options;
  let badFrames = 0;
  let queued = 0;
  let isPaused = false;
  let lastHandled: Promise<void> = Promise.resolve();
  const pace = createFramePace(limits.framesPerSecondMax, readOrPause);
  const cork = createCork(stream);
  const liveness = watchLiveness(socket, {
    intervalMs: limits.pingIntervalMs,
    onInterval() {
      if (socket.bufferedAmount > limits.unsentBytesMax) {
        disconnectSlow(socket);
        return true;
      }
      // The pong may be among the bytes that are not read.
      return isPaused;
    },
  });

  function send(message: Out): void {
    sendText(JSON.stringify(message));
  }

  function sendText(message: string | Buffer, written?: () => void): void {
    const isOpen = socket.readyState === socket.OPEN;
    if (!isOpen || socket.bufferedAmount > limits.unsentBytesMax) {
      if (isOpen) disconnectSlow(socket);
      written?.();
      return;
    }
    cork();
    // Also called with an error, when the socket closes before.
    socket.send(message, { binary: false }, written && (() => written()));
  }

  function accept(data: RawData, isBinary: boolean): void {
    pace.count();
    if (anyFrameIsLife) liveness.seen();
    try {
      if (isBinary)
        throw new TenureError("INVALID_MESSAGE", {
          reason: "expected a text frame, got a binary one",
        });
      handle(parse(data.toString()));
    } catch (error) {
      reject(error, isBinary ? {} : subjectOf(data.toString()));
    }
  }

  /** Called synchronously when no message is queued, so that a handler without asynchronous work costs no tick. */
  function handle(message: In): void {
    if (handlers.receiveAtOnce?.(message)) return;
    const handled =
      queued > 0 ? lastHandled.then(() => handlers.receive(message)) : handlers.receive(message);
    if (!handled) return;
    queued += 1;
    readOrPause();
    lastHandled = handled
      .catch((error: unknown) => reject(error))
      .then(() => {
        queued -= 1;
        readOrPause();
      });
  }

  /** Reading pauses while a queue is full, here or at the handler, and while the sender is too fast. */
  function readOrPause(): void {
    const pause = isPaused || queued >= QUEUE_MAX || pace.exceeded();
    if (pause !== socket.isPaused) pause ? socket.pause() : socket.resume();
  }

  function reject(error: unknown, about: Subject = {}): void {
    send(toErrorMessage(error, about) as Out);
    if (!isTenureError(error, "INVALID_MESSAGE")) return;
    if (++badFrames >= BAD_FRAMES_MAX) socket.close(CLOSE_CODES.BAD_FRAMES, "too many bad frames");
  }

  socket.on("message", accept);
  if (anyFrameIsLife) socket.on("ping", liveness.seen);
  socket.once("close", (code) => {
    liveness.end();
    handlers.closed({ silently: liveness.isSilent(), abruptly: code === NO_CLOSE_FRAME });
  });
  return {
    send,
    sendText,
    unsentBytes: () => socket.bufferedAmount,
    whenDrained(callback) {
      if (stream?.writableNeedDrain) stream.once("drain", callback);
      else setTimeout(() => socket.readyState === socket.OPEN && callback(), DRAIN_POLL_MS).unref();
    },
    ping: liveness.ping,
    close: (code, reason) => socket.close(code, reason),
    pauseReading(paused) {
      isPaused = paused;
      readOrPause();
    },
  };
}

/** The close frame waits behind the very bytes that are not read, so the wait for it is short. */
function disconnectSlow(socket: WebSocket): void {
  socket.close(CLOSE_CODES.TOO_SLOW, "send buffer is full");
  setTimeout(() => socket.terminate(), CLOSE_LIMIT_MS).unref();
}

/** Collects the frames of one tick into one write: written one by one, each would be a system call and a wake-up. */
function createCork(stream: Duplex | undefined): () => void {
  let isCorked = false;
  return () => {
    if (!stream || isCorked) return;
    isCorked = true;
    stream.cork();
    setImmediate(() => {
      isCorked = false;
      stream.uncork();
    });
  };
}

type Subject = { request_id?: string; job_id?: string };

/** The ids in a frame that is no valid message, as far as they can be read: its sender waits for an answer to them. */
function subjectOf(frame: string): Subject {
  try {
    const { request_id, job_id } = JSON.parse(frame) as Record<string, unknown>;
    return {
      ...(RequestId.safeParse(request_id).success && { request_id: request_id as string }),
      ...(JobId.safeParse(job_id).success && { job_id: job_id as string }),
    };
  } catch {
    return {};
  }
}
