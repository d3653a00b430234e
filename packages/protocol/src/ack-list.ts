/** How long an acknowledgement waits for a frame that takes it along. */
const ACK_DELAY_MS = 20;
/** A longer list is sent at once. */
const ACKS_AT_ONCE = 256;
/** A larger frame takes none along: it must stay within the limit of a frame, and may be refused for its size. */
const CARRIER_LENGTH_MAX = 65_536;

/**
 * Acknowledgements for the other end of a socket, with the feature `ack_lists`. They go along with the next frame in their
 * direction as its field `acks`, or in a frame of their own after 20 ms. What is lost with the connection is what an
 * acknowledgement on its way would lose: the result comes again.
 */
export class AckList<Ack> {
  readonly #after: (ms: number, act: () => void) => () => void;
  readonly #send: (frame: string) => void;
  #waiting: Ack[] = [];
  #cancelTimer: () => void = () => {};

  /** `after` calls `act` once, `ms` from now, unless the function that it returns is called before. */
  constructor(options: {
    after: (ms: number, act: () => void) => () => void;
    send: (frame: string) => void;
  }) {
    this.#after = options.after;
    this.#send = options.send;
  }

  add(ack: Ack): void {
    this.#waiting.push(ack);
    if (this.#waiting.length === 1)
      this.#cancelTimer = this.#after(ACK_DELAY_MS, () => this.flush());
    else if (this.#waiting.length >= ACKS_AT_ONCE) this.flush();
  }

  /** The frame of an object with what waits as its field `acks`. Call `tookAlong` when it was sent. */
  onto(frame: string): string {
    if (this.#waiting.length === 0 || frame.length > CARRIER_LENGTH_MAX) return frame;
    return `${frame.slice(0, -1)},"acks":${JSON.stringify(this.#waiting)}}`;
  }

  /** `sent` is what `onto` returned for `frame`, and was sent in this tick. */
  tookAlong(sent: string, frame: string): void {
    if (sent !== frame) this.clear();
  }

  flush(): void {
    if (this.#waiting.length === 0) return;
    const acks = this.#waiting;
    this.clear();
    this.#send(JSON.stringify({ type: "acks", acks }));
  }

  clear(): void {
    if (this.#waiting.length === 0) return;
    this.#cancelTimer();
    this.#waiting = [];
  }
}
