import type { WebSocket } from "ws";

/** After this many unanswered pings in a row the other end is gone, whatever TCP reports. */
const MISSED_PINGS_MAX = 2;

/** Errors of a network that gave up on the other end; the other end itself sent nothing. */
const SILENT_ERRORS = new Set(["ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN"]);

export interface Liveness {
  /** Pings with a number that the pong repeats: a pong that was already on its way proves nothing. */
  ping(limitMs: number): Promise<boolean>;
  /** A frame counts as a sign of life like a pong. */
  seen(): void;
  /** Whether the other end stopped answering; no close, FIN or reset came from it. */
  isSilent(): boolean;
  end(): void;
}

export interface LivenessOptions {
  intervalMs: number;
  /** Called at each interval before the ping; `true` skips the ping, because the pong could not be read. */
  onInterval: () => boolean;
}

/** Pings a socket at intervals and terminates it when the pongs stay away. */
export function watchLiveness(socket: WebSocket, options: LivenessOptions): Liveness {
  let missedPings = 0;
  let lastPing = 0;
  let isSilent = false;
  const awaited = new Map<string, (answered: boolean) => void>();

  const pinging = setInterval(() => {
    if (missedPings >= MISSED_PINGS_MAX) {
      isSilent = true;
      return socket.terminate();
    }
    if (options.onInterval()) return undefined;
    missedPings += 1;
    return socket.ping();
  }, options.intervalMs);

  socket.on("pong", (data) => {
    missedPings = 0;
    awaited.get(data.toString())?.(true);
  });
  // The WebSocket closes itself on a frame that it rejects (too large, bad UTF-8).
  socket.on("error", (error: NodeJS.ErrnoException) => {
    isSilent ||= SILENT_ERRORS.has(error.code ?? "");
  });

  return {
    ping(limitMs) {
      if (socket.readyState !== socket.OPEN) return Promise.resolve(false);
      return new Promise((resolve) => {
        const id = String(++lastPing);
        const finish = (answered: boolean) => {
          clearTimeout(timer);
          awaited.delete(id);
          resolve(answered);
        };
        const timer = setTimeout(() => finish(false), limitMs);
        awaited.set(id, finish);
        socket.ping(id);
      });
    },
    seen() {
      missedPings = 0;
    },
    isSilent: () => isSilent,
    end() {
      clearInterval(pinging);
      for (const finish of [...awaited.values()]) finish(false);
    },
  };
}
