import type { Clock } from "../../kernel/clock.ts";

/** What a result queue needs of a session's socket. */
export interface ResultLink {
  sendText(message: string): void;
  /** Bytes that were given to the socket and have not left the process. */
  unsentBytes(): number;
  /** Calls back once, when all of them have left. Never after the socket is closed. */
  whenDrained(callback: () => void): void;
}

export interface ResultWindow {
  /** No result is sent while more than this waits in the socket's buffer. */
  unsentBytesMax: number;
  /** Nor while more than this is unacknowledged, on a connection that acknowledges. */
  unackedBytesMax: number;
  /** Results that are read from the store at once. */
  readsMax: number;
  /** After so long without an acknowledgement the connection counts as one that sends none. */
  ackStallMs: number;
  /** The pause after a read that failed. */
  retryMs: number;
}

export const RESULT_WINDOW: ResultWindow = {
  // Small, so that other messages and pings do not wait behind it for long on a slow line.
  unsentBytesMax: 1_024 * 1_024,
  unackedBytesMax: 2 * 1_024 * 1_024,
  readsMax: 32,
  ackStallMs: 5_000,
  retryMs: 500,
};

/**
 * The results of one session connection: sent and not acknowledged, or waiting for room in the window. Only job ids
 * are kept; a result that has to wait is read from the store when there is room for it.
 *
 * Invariants: an entry leaves by `acked`, `takeOldest`, `close`, or when the store has no result for it. While results
 * wait, one of these will continue: a read under way, the drain callback, an acknowledgement, a timer.
 */
export interface ResultQueue<About> {
  readonly size: number;
  get(jobId: string): About | undefined;
  /** Adds an entry, or replaces what is known about it. Call `offer` or `wait` next. */
  put(jobId: string, about: About): void;
  /** Whether a result would be sent at once. */
  hasRoom(): boolean;
  /** Waits to be sent, or is sent and the client may not have received it yet. */
  isOnItsWay(jobId: string): boolean;
  /** Sends the result if there is room; else the entry waits and the frame is dropped. */
  offer(jobId: string, frame: string): void;
  /** The result is read and sent when there is room. */
  wait(jobId: string): void;
  /** Removes an entry that the client has acknowledged. */
  acked(jobId: string): About | undefined;
  /** Removes the oldest entries. */
  takeOldest(count: number): [jobId: string, about: About][];
  /** The connection is gone. Removes and returns all entries. */
  close(): [jobId: string, about: About][];
}

interface Entry<About> {
  about: About;
  state: "waiting" | "reading" | "sent";
  /** Counted as unacknowledged. */
  bytes: number;
  /** Place in the order of sending; 0 before it was sent. */
  number: number;
}

export function createResultQueue<About>({
  link,
  clock,
  read,
  absent,
  window = RESULT_WINDOW,
}: {
  link: ResultLink;
  clock: Clock;
  /** The frame of a result; undefined when the store has none. */
  read: (jobId: string) => Promise<string | undefined>;
  /** Called with an entry that was removed because the store has no result for it. */
  absent: (jobId: string, about: About) => void;
  window?: ResultWindow;
}): ResultQueue<About> {
  const entries = new Map<string, Entry<About>>();
  const closed = new AbortController();
  let waiting: string[] = [];
  /** The index of the first job id in `waiting` that has not been taken. */
  let head = 0;
  let reading = 0;
  /** The largest of the last results read: a guess at how much a read will add. Starts at the limit of a result. */
  let guessBytes = 256 * 1_024;
  let sent = 0;
  let acks = 0;
  let ackedUpTo = 0;
  let unackedBytes = 0;
  let hasAcked = false;
  let isDraining = false;
  let isPaused = false;
  let isStallWatched = false;

  const remove = (jobId: string, { bytes }: Entry<About>): void => {
    entries.delete(jobId);
    unackedBytes -= bytes;
  };

  function lack(): "drain" | "acks" | undefined {
    const comingBytes = reading * guessBytes;
    if (link.unsentBytes() + comingBytes >= window.unsentBytesMax) return "drain";
    if (hasAcked && unackedBytes + comingBytes >= window.unackedBytesMax) return "acks";
    return undefined;
  }

  function enqueue(jobId: string, entry: Entry<About>): void {
    entry.state = "waiting";
    waiting.push(jobId);
  }

  function putBack(jobId: string, entry: Entry<About>): void {
    entry.state = "waiting";
    if (head > 0) waiting[--head] = jobId;
    else waiting.unshift(jobId);
  }

  function takeWaiting(): string | undefined {
    const jobId = waiting[head];
    if (jobId === undefined) return undefined;
    head += 1;
    if (head === waiting.length || head > 1_000) {
      waiting = waiting.slice(head);
      head = 0;
    }
    return jobId;
  }

  function pump(): void {
    while (head < waiting.length && reading < window.readsMax && !isPaused) {
      const lacking = lack();
      if (lacking) {
        // With a read under way its end continues here.
        if (reading === 0) waitFor(lacking);
        return;
      }
      const jobId = takeWaiting();
      const entry = jobId === undefined ? undefined : entries.get(jobId);
      if (jobId !== undefined && entry?.state === "waiting") void readAndSend(jobId, entry);
    }
  }

  async function readAndSend(jobId: string, entry: Entry<About>): Promise<void> {
    entry.state = "reading";
    reading += 1;
    const outcome = await read(jobId).then(
      (frame) => ({ frame }),
      () => undefined,
    );
    reading -= 1;
    if (closed.signal.aborted) return;
    if (entries.get(jobId) === entry && entry.state === "reading") finish(jobId, entry, outcome);
    pump();
  }

  function finish(
    jobId: string,
    entry: Entry<About>,
    outcome: { frame: string | undefined } | undefined,
  ): void {
    if (!outcome) {
      putBack(jobId, entry);
      void pause();
    } else if (outcome.frame === undefined) {
      remove(jobId, entry);
      absent(jobId, entry.about);
    } else {
      guessBytes = Math.max(outcome.frame.length, guessBytes / 2);
      // The guess was too low: read it again later instead of keeping it.
      if (link.unsentBytes() >= window.unsentBytesMax) putBack(jobId, entry);
      else send(entry, outcome.frame);
    }
  }

  function send(entry: Entry<About>, frame: string): void {
    unackedBytes += frame.length - entry.bytes;
    entry.bytes = frame.length;
    entry.number = ++sent;
    entry.state = "sent";
    link.sendText(frame);
  }

  function waitFor(lacking: "drain" | "acks"): void {
    if (lacking === "acks") return void watchStall();
    if (isDraining) return;
    isDraining = true;
    link.whenDrained(() => {
      isDraining = false;
      pump();
    });
  }

  /** The store is away: results wait until it answers again. */
  async function pause(): Promise<void> {
    if (isPaused) return;
    isPaused = true;
    await clock.sleep(window.retryMs, closed.signal);
    isPaused = false;
    if (!closed.signal.aborted) pump();
  }

  /** A client that has stopped acknowledging must not stop receiving: what it was sent so far no longer counts. */
  async function watchStall(): Promise<void> {
    if (isStallWatched) return;
    isStallWatched = true;
    const before = acks;
    await clock.sleep(window.ackStallMs, closed.signal);
    isStallWatched = false;
    if (closed.signal.aborted) return;
    if (acks === before) {
      hasAcked = false;
      unackedBytes = 0;
      for (const entry of entries.values()) entry.bytes = 0;
    }
    pump();
  }

  return {
    get size() {
      return entries.size;
    },
    get: (jobId) => entries.get(jobId)?.about,
    put(jobId, about) {
      const entry = entries.get(jobId);
      if (entry) entry.about = about;
      else {
        const added: Entry<About> = { about, state: "waiting", bytes: 0, number: 0 };
        entries.set(jobId, added);
      }
    },
    hasRoom: () => head === waiting.length && lack() === undefined,
    isOnItsWay(jobId) {
      const entry = entries.get(jobId);
      if (!entry) return false;
      // Frames arrive in order: one sent after this and acknowledged shows that the client did not take this one.
      return entry.state !== "sent" || (hasAcked && entry.number > ackedUpTo);
    },
    offer(jobId, frame) {
      const entry = entries.get(jobId);
      if (!entry) return;
      if (head === waiting.length && lack() === undefined) send(entry, frame);
      else {
        enqueue(jobId, entry);
        pump();
      }
    },
    wait(jobId) {
      const entry = entries.get(jobId);
      if (!entry) return;
      enqueue(jobId, entry);
      pump();
    },
    acked(jobId) {
      const entry = entries.get(jobId);
      if (!entry) return undefined;
      remove(jobId, entry);
      hasAcked = true;
      acks += 1;
      ackedUpTo = Math.max(ackedUpTo, entry.number);
      if (head < waiting.length) pump();
      return entry.about;
    },
    takeOldest(count) {
      const taken = [...entries.entries()].slice(0, count);
      for (const [jobId, entry] of taken) remove(jobId, entry);
      return taken.map(([jobId, { about }]) => [jobId, about]);
    },
    close() {
      closed.abort();
      const left = [...entries].map(([jobId, { about }]): [string, About] => [jobId, about]);
      entries.clear();
      waiting = [];
      head = 0;
      return left;
    },
  };
}
