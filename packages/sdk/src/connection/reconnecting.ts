import { BAD_FRAMES_MAX, type GoAway, TenureError } from "@tenure/protocol";
import { openFetch } from "#tls";
import { openSocket as openRuntimeSocket, checkReady as runtimeCheckReady } from "#websocket";
import { type Cancel, type Clock, systemClock } from "../clock.ts";
import type { Connection, ConnectionOptions, ConnectionState } from "./connection.ts";
import {
  LINK_LIMITS,
  Link,
  type LinkEvents,
  type LinkLimits,
  type SendOutcome,
  type ServerMessage,
} from "./link.ts";
import { createMover, type Mover, type Trouble } from "./mover.ts";
import { BACKOFF, type Backoff, type Loss, planRetry } from "./retry.ts";
import { CLOSE_WITHIN_MS } from "./socket.ts";
import { createUrlRing, instanceUrl, readyUrl, type UrlRing } from "./urls.ts";

/** Longer waits that a server asks for are cut: a bug in it must not silence a fleet. */
const RETRY_AFTER_MS_MAX = 300_000;
const UNKNOWN_TYPES_MAX = 64;

/** Keeps one socket to an instance that answers, and reconnects without limit. */
export const createConnection = <In extends ServerMessage, Out, Ack>(
  options: ConnectionOptions<In, Out, Ack>,
): Connection<Out> => new Reconnecting(options);

/** A link, and what is known about it until it is lost. */
interface LinkRecord<In extends ServerMessage, Out, Ack> {
  readonly url: string;
  readonly link: Link<In, Out, Ack>;
  /** Another link took its place: its loss has no effect. */
  isRetired: boolean;
  readyAtMs: number | undefined;
  /** The server asked for no reconnect before this. */
  notBeforeMs: number;
  /** Frames that could not be parsed. */
  rejected: number;
}

/**
 * The state of a connection.
 *
 * - `#current` is the link in use or being opened; undefined while `idle`, `waiting` or `closed`.
 * - `#next` is a link to another instance that replaces `#current` as soon as it is registered (make before break). Its
 *   events have no effect on the state before that.
 * - `#cancel` cancels the one timer: the next attempt, or the departure that a `go_away` asked for.
 *
 * idle → connecting → handshake → ready; a loss leads to waiting, and from there to connecting. `close` leads to closed
 * from every state. The public methods are properties, so that they can be passed on as functions.
 */
class Reconnecting<In extends ServerMessage, Out, Ack> implements Connection<Out> {
  readonly #options: ConnectionOptions<In, Out, Ack>;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #limits: LinkLimits;
  readonly #backoff: Backoff;
  readonly #urls: UrlRing;
  readonly #mover: Mover;
  readonly #unknownTypes = new Set<string>();
  #state: ConnectionState = "idle";
  #current: LinkRecord<In, Out, Ack> | undefined;
  #next: LinkRecord<In, Out, Ack> | undefined;
  #instanceId: string | undefined;
  /** Of the last link that was ready. */
  #readyUrl: string | undefined;
  #failures = 0;
  #cancel: Cancel = () => {};

  constructor(options: ConnectionOptions<In, Out, Ack>) {
    const { clock = systemClock, random = Math.random, checkReady = runtimeCheckReady } = options;
    this.#options = options;
    this.#clock = clock;
    this.#random = random;
    this.#limits = { ...LINK_LIMITS, ...options.limits };
    this.#backoff = { ...BACKOFF, ...options.backoff };
    this.#urls = createUrlRing(options.urls, options.path);
    const fetchWith = openFetch(options.tls);
    this.#mover = createMover({
      clock,
      random,
      urls: this.#urls.others,
      checkReady: (url) => checkReady(readyUrl(url, options.path), fetchWith),
      current: () => this.#instanceId,
      move: (url) => this.#move(url),
    });
  }

  get instanceUrl(): string | undefined {
    return this.#readyUrl && instanceUrl(this.#readyUrl, this.#options.path);
  }

  get state(): ConnectionState {
    return this.#state;
  }

  readonly start = (): void => {
    if (this.#state === "idle") this.#attempt();
  };

  readonly send = (message: Out): SendOutcome =>
    this.#readyLink()?.send(message) ?? "not_connected";

  readonly sendFrame = (frame: string): SendOutcome =>
    this.#readyLink()?.sendFrame(frame) ?? "not_connected";

  readonly trouble = (sign: Trouble): void => {
    if (this.#state === "ready") this.#mover.trouble(sign);
  };

  readonly well = (sign: Trouble): void => this.#mover.well(sign);

  readonly restart = (reason: string): void =>
    void this.#current?.link.leave({ kind: "restarted", reason });

  readonly close = async (goodbye?: Out): Promise<void> => {
    const loss: Loss = { kind: "restarted", reason: "closed" };
    if (goodbye !== undefined) this.send(goodbye);
    const last = this.#current;
    this.#cancel();
    this.#mover.reset();
    if (!this.#isClosed()) this.#enter("closed");
    void this.#next?.link.leave(loss);
    if (last) await within(this.#clock, last.link.leave(loss));
  };

  #readyLink(): Link<In, Out, Ack> | undefined {
    return this.#state === "ready" ? this.#current?.link : undefined;
  }

  #enter(state: ConnectionState): void {
    this.#state = state;
    this.#options.on.state?.(state);
  }

  // A method, because the compiler narrows `#state` and does not see that a callback may close the connection.
  #isClosed(): boolean {
    return this.#state === "closed";
  }

  #attempt(): void {
    // The link that was to take over may still do so.
    if (this.#next) {
      this.#attemptIn(this.#backoff.baseMs);
      return;
    }
    const url = this.#urls.next();
    this.#enter("connecting");
    if (!this.#isClosed()) this.#current = this.#open(url);
  }

  #attemptIn(ms: number): void {
    this.#cancel = this.#clock.after(ms, () => this.#attempt());
  }

  /** Opens a link to another instance. The current one stays in use until it is registered, and if that fails. */
  #move(url: string): void {
    if (this.#state === "ready" && !this.#next) this.#next = this.#open(url);
  }

  #open(url: string): LinkRecord<In, Out, Ack> {
    const { incoming, handshake, pingMessage, tls } = this.#options;
    const { openSocket = openRuntimeSocket, readFrame } = this.#options;
    const link: Link<In, Out, Ack> = new Link({
      ...{ url, incoming, handshake, pingMessage, openSocket, readFrame, tls },
      clock: this.#clock,
      limits: this.#limits,
      on: this.#eventsOf(() => record),
    });
    const record: LinkRecord<In, Out, Ack> = {
      ...{ url, link },
      ...{ isRetired: false, readyAtMs: undefined, notBeforeMs: 0, rejected: 0 },
    };
    return record;
  }

  #eventsOf(record: () => LinkRecord<In, Out, Ack>): LinkEvents<In, Ack> {
    const { on } = this.#options;
    const isNext = () => record() === this.#next;
    return {
      opened: () => {
        if (!isNext()) this.#enter("handshake");
      },
      ready: (ack) => {
        if (isNext()) this.#takeOver(record());
        if (!this.#isClosed()) this.#ready(record(), ack);
      },
      message: (message) => on.message?.(message),
      goAway: (message) => {
        const loss: Loss = { kind: "stopping", reason: "the other instance stops" };
        if (isNext()) void record().link.leave(loss);
        else this.#goAway(record(), message);
      },
      error: ({ retry_after_ms }) => this.#holdOff(record(), retry_after_ms),
      unknown: (type) => this.#reportUnknown(type),
      rejected: (error, value) => {
        record().rejected += 1;
        // A broken server may send thousands; the first few are enough.
        if (record().rejected <= BAD_FRAMES_MAX) on.problem?.(error);
        on.rejected?.(value, error);
      },
      lost: (loss) => {
        if (isNext()) this.#next = undefined;
        else if (!record().isRetired) this.#lost(record(), loss);
      },
    };
  }

  #takeOver(next: LinkRecord<In, Out, Ack>): void {
    const old = this.#current;
    const loss: Loss = { kind: "restarted", reason: "moved to another instance" };
    this.#next = undefined;
    this.#current = next;
    this.#urls.moved(next.url);
    this.#cancel();
    if (!old) return;
    old.isRetired = true;
    void old.link.leave(loss);
    this.#options.on.down?.({ ...loss, url: next.url, wasReady: true, retryInMs: 0 });
  }

  #ready(record: LinkRecord<In, Out, Ack>, ack: Ack): void {
    record.readyAtMs = this.#clock.monotonicMs();
    this.#readyUrl = record.url;
    this.#instanceId = (ack as { instance_id?: string }).instance_id;
    this.#mover.reset();
    this.#enter("ready");
    this.#options.on.ready?.(ack);
  }

  #holdOff(record: LinkRecord<In, Out, Ack>, retryAfterMs = 0): void {
    const waitMs = Math.min(retryAfterMs, RETRY_AFTER_MS_MAX);
    record.notBeforeMs = Math.max(record.notBeforeMs, this.#clock.monotonicMs() + waitMs);
  }

  /** The instance serves until it stops, and it named the time to reconnect: until then the link stays in use. */
  #goAway(record: LinkRecord<In, Out, Ack>, { retry_after_ms, urls, reason }: GoAway): void {
    this.#holdOff(record, retry_after_ms);
    this.#urls.prefer(urls ?? []);
    const leave = () => void this.#current?.link.leave({ kind: "stopping", reason });
    const waitMs = Math.max(0, record.notBeforeMs - this.#clock.monotonicMs());
    this.#cancel();
    if (this.#state === "ready") this.#cancel = this.#clock.after(waitMs, leave);
    else leave();
  }

  #lost({ url, readyAtMs, notBeforeMs }: LinkRecord<In, Out, Ack>, ended: Loss): void {
    const { judge, on } = this.#options;
    this.#current = undefined;
    this.#cancel();
    this.#mover.reset();
    if (this.#isClosed()) return;
    // The next link may be registered before its acknowledgement arrives: then it replaced this one.
    const isOurs = this.#next !== undefined && ended.kind === "replaced";
    const seen: Loss = isOurs ? { kind: "restarted", reason: ended.reason } : ended;
    const nowMs = this.#clock.monotonicMs();
    const wasReady = readyAtMs !== undefined;
    const loss = judge?.(seen, wasReady) ?? seen;
    const past = {
      failures: this.#failures,
      readyForMs: readyAtMs === undefined ? undefined : nowMs - readyAtMs,
      askedMs: notBeforeMs - nowMs,
      random: this.#random(),
    };
    const retry = planRetry(loss, past, this.#backoff);
    this.#failures = retry.failures;
    this.#attemptIn(retry.waitMs);
    this.#enter("waiting");
    if (!this.#isClosed()) on.down?.({ ...loss, url, wasReady, retryInMs: retry.waitMs });
  }

  #reportUnknown(type: string): void {
    if (this.#unknownTypes.has(type) || this.#unknownTypes.size >= UNKNOWN_TYPES_MAX) return;
    this.#unknownTypes.add(type);
    const reason = `a message of unknown type ${JSON.stringify(type)}; the server may be newer`;
    this.#options.on.problem?.(new TenureError("INVALID_MESSAGE", { reason }));
  }
}

/** A browser may take minutes to give up a socket; `close` does not wait for that. */
async function within(clock: Clock, closed: Promise<void>): Promise<void> {
  let cancel: Cancel = () => {};
  const late = new Promise<void>((resolve) => {
    cancel = clock.after(2 * CLOSE_WITHIN_MS, resolve);
  });
  await Promise.race([closed, late]);
  cancel();
}
