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

export interface FrameLimits {
  /** Bytes that may wait for a reader before it counts as too slow. */
  unsentBytesMax: number;
  /** Frames a second that are read; a sender who is faster is read later, not refused. What the kernel handed us already is still taken. */
  framesPerSecondMax: number;
  pingIntervalMs: number;
}

export const FRAME_LIMITS: FrameLimits = {
  unsentBytesMax: 8 * 1_024 * 1_024,
  // A worker says three frames a job: this is some 15,000 jobs a second over one socket.
  framesPerSecondMax: 50_000,
  pingIntervalMs: 5_000,
};

const FAREWELL_LIMIT_MS = 2_000;
/** RFC 6455: what an endpoint reports when no close frame was received. */
const NO_CLOSE_FRAME = 1_006;

/** Where no event tells that the buffer is empty. */
const DRAIN_POLL_MS = 10;

/** Two pings in a row that nobody answered: the other end is gone, whatever TCP believes. */
const MISSED_PINGS_MAX = 2;

/** A socket that speaks messages of one kind. */
export interface MessageSocket<Out> {
  send(message: Out): void;
  /** The same for a message that is JSON already: a payload is not parsed and written again on its way. */
  sendText(message: string | Buffer): void;
  /** Bytes that were given to the socket and have not left the process. */
  unsentBytes(): number;
  /** Calls back once, when all of them have left. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
  close(code: CloseCode, reason: string): void;
  /** Stops reading the socket, and starts again: a sender that is too fast is slowed down by TCP. */
  holdReading(isHeld: boolean): void;
  /** Whether the other end answers a ping within `limitMs`. */
  ping(limitMs: number): Promise<boolean>;
}

export interface MessageHandlers<In> {
  /** Messages of one socket are handed over one after another, in the order they came. */
  receive(message: In): Promise<void> | undefined | void;
  /** Takes a message that need not wait for those before it. False: hand it to `receive`. */
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

/**
 * Turns a WebSocket into messages: every frame checked once, here. Bad ones are answered and, after three,
 * end the socket and nobody else's. A reader who does not read is cut off before it costs us memory.
 */
export function speak<In, Out>(
  socket: WebSocket,
  options: {
    /** A text frame as a message; throws `INVALID_MESSAGE`. */
    parse: (frame: string) => In;
    handlers: MessageHandlers<In>;
    limits?: FrameLimits | undefined;
    /**
     * Every frame of the other end counts as a sign of life, not only its pongs: on a slow line a ping waits behind
     * megabytes of results.
     */
    anyFrameIsLife?: boolean | undefined;
    /** What the WebSocket writes to; with it the frames of one turn of the event loop are one write. */
    stream?: Duplex | undefined;
  },
): MessageSocket<Out> {
  const { parse, handlers, limits = FRAME_LIMITS, stream, anyFrameIsLife } = options;
  let badFrames = 0;
  let missedPings = 0;
  let inLine = 0;
  let isCorked = false;
  let isHeld = false;
  let line: Promise<void> = Promise.resolve();
  const pace = createPace(limits.framesPerSecondMax, readOrWait);

  function send(message: Out): void {
    sendText(JSON.stringify(message));
  }

  function sendText(message: string | Buffer): void {
    if (socket.readyState !== socket.OPEN) return;
    if (socket.bufferedAmount > limits.unsentBytesMax) cutOff();
    else {
      cork();
      socket.send(message, { binary: false });
    }
  }

  function whenDrained(callback: () => void): void {
    if (stream?.writableNeedDrain) stream.once("drain", callback);
    else setTimeout(() => socket.readyState === socket.OPEN && callback(), DRAIN_POLL_MS).unref();
  }

  /** Written one by one, each frame would be a system call here and a wake-up at the other end. */
  function cork(): void {
    if (!stream || isCorked) return;
    isCorked = true;
    stream.cork();
    setImmediate(() => {
      isCorked = false;
      stream.uncork();
    });
  }

  /** The farewell waits behind the very bytes that are not read, so it is not waited for long. */
  function cutOff(): void {
    socket.close(CLOSE_CODES.TOO_SLOW, "too slow");
    setTimeout(() => socket.terminate(), FAREWELL_LIMIT_MS).unref();
  }

  function accept(data: RawData, isBinary: boolean): void {
    pace.count();
    if (anyFrameIsLife) missedPings = 0;
    try {
      if (isBinary) throw new TenureError("INVALID_MESSAGE", { reason: "a frame must be text" });
      hand(parse(data.toString()));
    } catch (error) {
      refuse(error, isBinary ? {} : subjectOf(data.toString()));
    }
  }

  /** At once when nobody is in line, so that a handler with nothing to wait for costs no turn of the loop. */
  function hand(message: In): void {
    if (handlers.receiveAtOnce?.(message)) return;
    const handled =
      inLine > 0 ? line.then(() => handlers.receive(message)) : handlers.receive(message);
    if (!handled) return;
    inLine += 1;
    readOrWait();
    line = handled
      .catch((error: unknown) => refuse(error))
      .then(() => {
        inLine -= 1;
        readOrWait();
      });
  }

  /** Reasons not to read on: a full line here or at the handler, and a sender who is too fast. */
  function readOrWait(): void {
    const wait = isHeld || inLine >= LINE_MAX || pace.exceeded();
    if (wait !== socket.isPaused) wait ? socket.pause() : socket.resume();
  }

  function refuse(error: unknown, about: Subject = {}): void {
    send(toErrorMessage(error, about) as Out);
    if (!isTenureError(error, "INVALID_MESSAGE")) return;
    if (++badFrames >= BAD_FRAMES_MAX) socket.close(CLOSE_CODES.BAD_FRAMES, "too many bad frames");
  }

  let pings = 0;
  let isSilent = false;
  const awaited = new Map<string, (answered: boolean) => void>();

  /** By a number that the pong repeats: a pong that was under way already proves nothing. */
  function ping(limitMs: number): Promise<boolean> {
    if (socket.readyState !== socket.OPEN) return Promise.resolve(false);
    return new Promise((resolve) => {
      const name = String(++pings);
      const settle = (answered: boolean) => {
        clearTimeout(timer);
        awaited.delete(name);
        resolve(answered);
      };
      const timer = setTimeout(() => settle(false), limitMs);
      awaited.set(name, settle);
      socket.ping(name);
    });
  }

  const pinging = setInterval(() => {
    if (missedPings >= MISSED_PINGS_MAX) {
      isSilent = true;
      return socket.terminate();
    }
    if (socket.bufferedAmount > limits.unsentBytesMax) return cutOff();
    // What is not read may hold the pong.
    if (isHeld) return undefined;
    missedPings += 1;
    return socket.ping();
  }, limits.pingIntervalMs);

  socket.on("message", accept);
  socket.on("pong", (data) => {
    missedPings = 0;
    awaited.get(data.toString())?.(true);
  });
  if (anyFrameIsLife)
    socket.on("ping", () => {
      missedPings = 0;
    });
  // What the frame layer refuses (oversize, bad UTF-8) closes the socket by itself.
  socket.on("error", (error: NodeJS.ErrnoException) => {
    isSilent ||= SILENT_ERRORS.has(error.code ?? "");
  });
  socket.once("close", (code) => {
    clearInterval(pinging);
    for (const settle of [...awaited.values()]) settle(false);
    handlers.closed({ silently: isSilent, abruptly: code === NO_CLOSE_FRAME });
  });
  return {
    send,
    sendText,
    unsentBytes: () => socket.bufferedAmount,
    whenDrained,
    ping,
    close: (code, reason) => socket.close(code, reason),
    holdReading(held) {
      isHeld = held;
      readOrWait();
    },
  };
}

/** The network gave up on the other end, which said nothing. */
const SILENT_ERRORS = new Set(["ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN"]);

type Subject = { request_id?: string; job_id?: string };

/** What a frame that cannot be understood was about, if that much can be read: its sender looks for an answer. */
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

/** Messages that may wait for the one before them. A full line stops the reading, not the sender's messages. */
const LINE_MAX = 256;

/** Counts frames; past the limit the socket is not read until the second is over. */
function createPace(
  framesPerSecondMax: number,
  onTurn: () => void,
): { count(): void; exceeded(): boolean } {
  let secondBeganMs = 0;
  let frames = 0;
  const restMs = () => secondBeganMs + 1_000 - performance.now();
  const exceeded = () => frames >= framesPerSecondMax && restMs() > 0;

  /** Looks again until it is so: a timer of a busy loop may fire before its time, and nobody else would ask. */
  function turnWhenOver(): void {
    if (exceeded()) setTimeout(turnWhenOver, restMs()).unref();
    else onTurn();
  }

  return {
    exceeded,
    count() {
      if (restMs() <= 0) {
        secondBeganMs = performance.now();
        frames = 0;
      }
      if (++frames !== framesPerSecondMax) return;
      onTurn();
      turnWhenOver();
    },
  };
}
