import type { Clock } from "../../kernel/clock.ts";

/** The part of a session's socket that a result queue uses. */
export interface ResultLink {
  sendText(message: string): void;
  /** Bytes in the socket's send buffer. */
  unsentBytes(): number;
  /** Calls back once, when the buffer is empty. Never after the socket is closed. */
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
  // Small, so that other messages and pings do not wait long behind it on a slow connection.
  unsentBytesMax: 1_024 * 1_024,
  unackedBytesMax: 2 * 1_024 * 1_024,
  readsMax: 32,
  ackStallMs: 5_000,
  retryMs: 500,
};

interface Entry<About> {
  about: About;
  state: "waiting" | "reading" | "sent";
  /** Counted as unacknowledged. */
  bytes: number;
  /** Place in the order of sending; 0 before it was sent. */
  number: number;
}

export interface ResultQueueOptions<About> {
  link: ResultLink;
  clock: Clock;
  /** The frame of a result; undefined if the store has none. */
  read: (jobId: string) => Promise<string | undefined>;
  /** Called with an entry that was removed because the store has no result for it. */
  onAbsent: (jobId: string, about: About) => void;
  window?: ResultWindow;
}

/**
 * The results of one session connection: sent and not acknowledged, or waiting for room in the window. Only job ids
 * are kept; a result that has to wait is read from the store when there is room for it.
 *
 * Invariants: an entry leaves by `acked`, `takeOldest`, `close`, or when the store has no result for it. While results
 * wait, one of these continues: a read in flight, the drain callback, an acknowledgement, a timer.
 */
export class ResultQueue<About> {
  readonly #options: ResultQueueOptions<About>;
  readonly #window: ResultWindow;
  readonly #entries = new Map<string, Entry<About>>();
  readonly #closed = new AbortController();
  #waiting: string[] = [];
  /** The index of the first job id in `#waiting` that has not been taken. */
  #head = 0;
  #reading = 0;
  /** The largest of the last results read: estimates how much a read will add. Starts at the limit of a result. */
  #guessBytes = 256 * 1_024;
  #sent = 0;
  #acks = 0;
  #ackedUpTo = 0;
  #unackedBytes = 0;
  #hasAcked = false;
  #isDraining = false;
  #isPaused = false;
  #isStallWatched = false;

  constructor(options: ResultQueueOptions<About>) {
    this.#options = options;
    this.#window = options.window ?? RESULT_WINDOW;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(jobId: string): About | undefined {
    return this.#entries.get(jobId)?.about;
  }

  /** Adds an entry, or replaces its data. Call `offer` or `wait` next. */
  put(jobId: string, about: About): void {
    const entry = this.#entries.get(jobId);
    if (entry) entry.about = about;
    else this.#entries.set(jobId, { about, state: "waiting", bytes: 0, number: 0 });
  }

  /** Whether a result would be sent at once. */
  hasRoom(): boolean {
    return this.#head === this.#waiting.length && this.#lack() === undefined;
  }

  /** Whether it waits to be sent, or was sent and may not have arrived yet. */
  isOnItsWay(jobId: string): boolean {
    const entry = this.#entries.get(jobId);
    if (!entry) return false;
    // Frames arrive in order: an acknowledged frame that was sent later shows that the client did not take this one.
    return entry.state !== "sent" || (this.#hasAcked && entry.number > this.#ackedUpTo);
  }

  /** Sends the result if there is room; else the entry waits and the frame is dropped. */
  offer(jobId: string, frame: string): void {
    const entry = this.#entries.get(jobId);
    if (!entry) return;
    if (this.hasRoom()) this.#send(entry, frame);
    else {
      this.#enqueue(jobId, entry);
      this.#pump();
    }
  }

  /** The result is read and sent when there is room. */
  wait(jobId: string): void {
    const entry = this.#entries.get(jobId);
    if (!entry) return;
    this.#enqueue(jobId, entry);
    this.#pump();
  }

  /** Removes an entry that the client has acknowledged. */
  acked(jobId: string): About | undefined {
    const entry = this.#entries.get(jobId);
    if (!entry) return undefined;
    this.#remove(jobId, entry);
    this.#hasAcked = true;
    this.#acks += 1;
    this.#ackedUpTo = Math.max(this.#ackedUpTo, entry.number);
    if (this.#head < this.#waiting.length) this.#pump();
    return entry.about;
  }

  /** Removes the oldest entries. */
  takeOldest(count: number): [jobId: string, about: About][] {
    const taken = [...this.#entries.entries()].slice(0, count);
    for (const [jobId, entry] of taken) this.#remove(jobId, entry);
    return taken.map(([jobId, { about }]) => [jobId, about]);
  }

  /** The connection is closed. Removes and returns all entries. */
  close(): [jobId: string, about: About][] {
    this.#closed.abort();
    const left = [...this.#entries].map(([jobId, { about }]): [string, About] => [jobId, about]);
    this.#entries.clear();
    this.#waiting = [];
    this.#head = 0;
    return left;
  }

  #remove(jobId: string, { bytes }: Entry<About>): void {
    this.#entries.delete(jobId);
    this.#unackedBytes -= bytes;
  }

  #lack(): "drain" | "acks" | undefined {
    const { unsentBytesMax, unackedBytesMax } = this.#window;
    const comingBytes = this.#reading * this.#guessBytes;
    if (this.#options.link.unsentBytes() + comingBytes >= unsentBytesMax) return "drain";
    if (this.#hasAcked && this.#unackedBytes + comingBytes >= unackedBytesMax) return "acks";
    return undefined;
  }

  #enqueue(jobId: string, entry: Entry<About>): void {
    entry.state = "waiting";
    this.#waiting.push(jobId);
  }

  #putBack(jobId: string, entry: Entry<About>): void {
    entry.state = "waiting";
    if (this.#head > 0) this.#waiting[--this.#head] = jobId;
    else this.#waiting.unshift(jobId);
  }

  #takeWaiting(): string | undefined {
    const jobId = this.#waiting[this.#head];
    if (jobId === undefined) return undefined;
    this.#head += 1;
    if (this.#head === this.#waiting.length || this.#head > 1_000) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
    return jobId;
  }

  #pump(): void {
    const { readsMax } = this.#window;
    while (this.#head < this.#waiting.length && this.#reading < readsMax && !this.#isPaused) {
      const lacking = this.#lack();
      if (lacking) {
        // With a read in flight its end continues here.
        if (this.#reading === 0) this.#waitFor(lacking);
        return;
      }
      const jobId = this.#takeWaiting();
      const entry = jobId === undefined ? undefined : this.#entries.get(jobId);
      if (jobId !== undefined && entry?.state === "waiting") void this.#readAndSend(jobId, entry);
    }
  }

  async #readAndSend(jobId: string, entry: Entry<About>): Promise<void> {
    entry.state = "reading";
    this.#reading += 1;
    const outcome = await this.#options.read(jobId).then(
      (frame) => ({ frame }),
      () => undefined,
    );
    this.#reading -= 1;
    if (this.#closed.signal.aborted) return;
    if (this.#entries.get(jobId) === entry && entry.state === "reading")
      this.#finish(jobId, entry, outcome);
    this.#pump();
  }

  #finish(
    jobId: string,
    entry: Entry<About>,
    outcome: { frame: string | undefined } | undefined,
  ): void {
    const { link, onAbsent } = this.#options;
    if (!outcome) {
      this.#putBack(jobId, entry);
      void this.#pause();
    } else if (outcome.frame === undefined) {
      this.#remove(jobId, entry);
      onAbsent(jobId, entry.about);
    } else {
      this.#guessBytes = Math.max(outcome.frame.length, this.#guessBytes / 2);
      // The guess was too low: read it again later instead of keeping it.
      if (link.unsentBytes() >= this.#window.unsentBytesMax) this.#putBack(jobId, entry);
      else this.#send(entry, outcome.frame);
    }
  }

  #send(entry: Entry<About>, frame: string): void {
    this.#unackedBytes += frame.length - entry.bytes;
    entry.bytes = frame.length;
    entry.number = ++this.#sent;
    entry.state = "sent";
    this.#options.link.sendText(frame);
  }

  #waitFor(lacking: "drain" | "acks"): void {
    if (lacking === "acks") return void this.#watchStall();
    if (this.#isDraining) return;
    this.#isDraining = true;
    this.#options.link.whenDrained(() => {
      this.#isDraining = false;
      this.#pump();
    });
  }

  /** The store is down: results wait until it answers again. */
  async #pause(): Promise<void> {
    if (this.#isPaused) return;
    this.#isPaused = true;
    await this.#options.clock.sleep(this.#window.retryMs, this.#closed.signal);
    this.#isPaused = false;
    if (!this.#closed.signal.aborted) this.#pump();
  }

  /** A client that has stopped acknowledging still receives: the results sent to it so far no longer count. */
  async #watchStall(): Promise<void> {
    if (this.#isStallWatched) return;
    this.#isStallWatched = true;
    const before = this.#acks;
    await this.#options.clock.sleep(this.#window.ackStallMs, this.#closed.signal);
    this.#isStallWatched = false;
    if (this.#closed.signal.aborted) return;
    if (this.#acks === before) {
      this.#hasAcked = false;
      this.#unackedBytes = 0;
      for (const entry of this.#entries.values()) entry.bytes = 0;
    }
    this.#pump();
  }
}
