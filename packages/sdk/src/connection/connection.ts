import { BAD_FRAMES_MAX, type GoAway, TenureError } from "@tenure/protocol";
import type * as z from "zod";
import { openSocket as openRuntimeSocket, checkReady as runtimeCheckReady } from "#websocket";
import { type Cancel, type Clock, systemClock } from "../clock.ts";
import type { Handshake } from "./handshake.ts";
import {
  LINK_LIMITS,
  type Link,
  type LinkEvents,
  type LinkLimits,
  openLink,
  type SendOutcome,
  type ServerMessage,
} from "./link.ts";
import { type CheckReady, createMover, type Trouble } from "./mover.ts";
import { BACKOFF, type Backoff, type Loss, planRetry } from "./retry.ts";
import { CLOSE_WITHIN_MS, type OpenSocket } from "./socket.ts";
import { createUrlRing, readyUrl, type SocketPath } from "./urls.ts";

/** `waiting`: between two attempts. `closed` is the end; there is no way back. */
export type ConnectionState = "idle" | "connecting" | "handshake" | "ready" | "waiting" | "closed";

/** A loss, and what the connection does about it. */
export interface Down extends Loss {
  url: string;
  /** False when the attempt had not become a connection yet. */
  wasReady: boolean;
  retryInMs: number;
}

export interface ConnectionEvents<In, Ack> {
  ready?(ack: Ack): void;
  /** Every message but `go_away`, which the connection follows by itself. */
  message?(message: In): void;
  /** After every loss and every failed attempt. `error` says what only a person can mend. */
  down?(down: Down): void;
  state?(state: ConnectionState): void;
  /** Something is wrong that does not end the connection: a frame that cannot be read, for one. */
  problem?(error: TenureError): void;
  /** The JSON of a frame that was no message, for whoever can still answer it. */
  rejected?(value: unknown, error: TenureError): void;
}

/** What tests and special networks change. The defaults are for everybody else. */
export interface ConnectionTuning {
  limits?: Partial<LinkLimits>;
  backoff?: Partial<Backoff>;
  clock?: Clock;
  /** At least 0, below 1. */
  random?: () => number;
  openSocket?: OpenSocket;
  /** Asks another instance whether it can do its work, before the connection moves there. */
  checkReady?: CheckReady;
}

export interface ConnectionOptions<In extends ServerMessage, Out, Ack> extends ConnectionTuning {
  /** Instances in order of preference, as `http(s)://` or `ws(s)://`. */
  urls: readonly string[];
  path: SocketPath;
  incoming: z.ZodType<In>;
  handshake: Handshake<In, Out, Ack>;
  /** See `openLink`. */
  pingMessage?(ack: Ack): Out | undefined;
  /** A second look at a loss, by whoever knows what the handshake had asked for. */
  judge?(loss: Loss, wasReady: boolean): Loss;
  on: ConnectionEvents<In, Ack>;
}

export interface Connection<Out> {
  readonly state: ConnectionState;
  start(): void;
  /**
   * Nothing is kept for the next connection: it has another epoch, perhaps another instance, and only the caller
   * knows what is still true there. Whoever must be heard says it again when `ready`.
   */
  send(message: Out): SendOutcome;
  /** The same, for a message that is JSON already. */
  sendFrame(frame: string): SendOutcome;
  /**
   * The instance answers, but cannot do its work: presence that is not renewed, calls that end with `DEPENDENCY_DOWN`.
   * While it lasts the connection looks for an instance that is ready, and moves there: the old socket stays until the
   * new one is registered.
   */
  trouble(sign: Trouble): void;
  well(sign: Trouble): void;
  /** Leaves this socket for a new one, to say in the handshake what has changed. */
  restart(reason: string): void;
  /** Says goodbye and stops for good. Resolves when the socket is gone. */
  close(goodbye?: Out): Promise<void>;
}

/** Longer waits that a server asks for are cut: a slip of its clock must not silence a fleet. */
const RETRY_AFTER_MS_MAX = 300_000;
const UNKNOWN_TYPES_MAX = 64;

/** One socket at a time to whichever instance answers, opened again for as long as it takes. */
export function createConnection<In extends ServerMessage, Out, Ack>(
  options: ConnectionOptions<In, Out, Ack>,
): Connection<Out> {
  const { on, clock = systemClock, random = Math.random } = options;
  const limits = { ...LINK_LIMITS, ...options.limits };
  const backoff = { ...BACKOFF, ...options.backoff };
  const urls = createUrlRing(options.urls, options.path);
  const unknownTypes = new Set<string>();
  let state: ConnectionState = "idle";
  let link: Link<Out> | undefined;
  /** The link that takes the place of `link` as soon as it is registered. */
  let next: Link<Out> | undefined;
  /** From now on a loss of `link` means nothing: another one took its place. */
  let retire = () => {};
  let instanceId: string | undefined;
  let failures = 0;
  let cancel: Cancel = () => {};

  function enter(next: ConnectionState): void {
    state = next;
    on.state?.(next);
  }

  // A function, because any callback may close the connection and the compiler does not see it.
  function isClosed(): boolean {
    return state === "closed";
  }

  const open = (url: string, on: LinkEvents<In, Ack>): Link<Out> =>
    openLink<In, Out, Ack>({
      url,
      incoming: options.incoming,
      handshake: options.handshake,
      pingMessage: options.pingMessage,
      openSocket: options.openSocket ?? openRuntimeSocket,
      clock,
      limits,
      on,
    });

  const mover = createMover({
    clock,
    random,
    urls: urls.others,
    checkReady: (url) => (options.checkReady ?? runtimeCheckReady)(readyUrl(url, options.path)),
    current: () => instanceId,
    move,
  });

  function attempt(): void {
    // The link that was to take over may still do so.
    if (next) {
      cancel = clock.after(backoff.baseMs, attempt);
      return;
    }
    const url = urls.next();
    enter("connecting");
    if (isClosed()) return;
    const events = linkEvents(url);
    retire = events.retire;
    link = open(url, events);
  }

  /** Make before break: until the new link is registered the old one does the work, and stays if that fails. */
  function move(url: string): void {
    if (state !== "ready" || next) return;
    const events = linkEvents(url);
    const fresh = open(url, {
      ...events,
      opened() {},
      goAway(message) {
        if (link === fresh) return events.goAway(message);
        void fresh.leave({ kind: "stopping", reason: "the other instance stops" });
      },
      ready(ack) {
        const old = link;
        const loss: Loss = { kind: "restarted", reason: "moved to another instance" };
        next = undefined;
        retire();
        retire = events.retire;
        link = fresh;
        urls.moved(url);
        cancel();
        void old?.leave(loss);
        if (old) on.down?.({ ...loss, url, wasReady: true, retryInMs: 0 });
        if (!isClosed()) events.ready(ack);
      },
      lost(loss) {
        if (link === fresh) return events.lost(loss);
        next = undefined;
      },
    });
    next = fresh;
  }

  /** What this one socket tells, and what has to be remembered about it until it is lost. */
  function linkEvents(url: string): LinkEvents<In, Ack> & { retire(): void } {
    let isRetired = false;
    let readyAtMs: number | undefined;
    let notBeforeMs = 0;
    let rejected = 0;

    function holdBack(retryAfterMs = 0): void {
      const waitMs = Math.min(retryAfterMs, RETRY_AFTER_MS_MAX);
      notBeforeMs = Math.max(notBeforeMs, clock.monotonicMs() + waitMs);
    }

    return {
      retire() {
        isRetired = true;
      },
      opened: () => enter("handshake"),
      ready(ack) {
        readyAtMs = clock.monotonicMs();
        instanceId = (ack as { instance_id?: string }).instance_id;
        mover.reset();
        enter("ready");
        on.ready?.(ack);
      },
      message: (message) => on.message?.(message),
      goAway(message) {
        holdBack(message.retry_after_ms);
        urls.prefer(message.urls ?? []);
        leaveAt(notBeforeMs, message);
      },
      told: ({ retry_after_ms }) => holdBack(retry_after_ms),
      unknown: reportOnce,
      rejected(error, value) {
        rejected += 1;
        // A server gone wrong may send thousands. The first few say all.
        if (rejected <= BAD_FRAMES_MAX) on.problem?.(error);
        on.rejected?.(value, error);
      },
      lost(ended) {
        if (isRetired) return;
        link = undefined;
        cancel();
        mover.reset();
        if (isClosed()) return;
        // The new link may be registered before its acknowledgement is here: then it is we who took the old one's place.
        const isOurs = next !== undefined && ended.kind === "replaced";
        const seen: Loss = isOurs ? { kind: "restarted", reason: ended.reason } : ended;
        const nowMs = clock.monotonicMs();
        const wasReady = readyAtMs !== undefined;
        const readyForMs = readyAtMs === undefined ? undefined : nowMs - readyAtMs;
        const loss = options.judge?.(seen, wasReady) ?? seen;
        const past = { failures, readyForMs, askedMs: notBeforeMs - nowMs, random: random() };
        const retry = planRetry(loss, past, backoff);
        failures = retry.failures;
        cancel = clock.after(retry.waitMs, attempt);
        enter("waiting");
        if (!isClosed()) on.down?.({ ...loss, url, wasReady, retryInMs: retry.waitMs });
      },
    };
  }

  /** The instance serves until it stops, and it said when to come back: so long the old link is still good. */
  function leaveAt(atMs: number, { reason }: GoAway): void {
    const leave = () => {
      void link?.leave({ kind: "stopping", reason });
    };
    cancel();
    if (state === "ready") cancel = clock.after(Math.max(0, atMs - clock.monotonicMs()), leave);
    else leave();
  }

  function reportOnce(type: string): void {
    if (unknownTypes.has(type) || unknownTypes.size >= UNKNOWN_TYPES_MAX) return;
    unknownTypes.add(type);
    const reason = `a message of unknown type ${JSON.stringify(type)}; the server may be newer`;
    on.problem?.(new TenureError("INVALID_MESSAGE", { reason }));
  }

  return {
    get state() {
      return state;
    },
    start() {
      if (state === "idle") attempt();
    },
    send: (message) => (state === "ready" && link ? link.send(message) : "not_connected"),
    sendFrame: (frame) => (state === "ready" && link ? link.sendFrame(frame) : "not_connected"),
    trouble(sign) {
      if (state === "ready") mover.trouble(sign);
    },
    well: mover.well,
    restart: (reason) => void link?.leave({ kind: "restarted", reason }),
    async close(goodbye) {
      if (state === "ready" && goodbye !== undefined) link?.send(goodbye);
      const last = link;
      cancel();
      mover.reset();
      if (!isClosed()) enter("closed");
      void next?.leave({ kind: "restarted", reason: "closed" });
      if (last) await within(clock, last.leave({ kind: "restarted", reason: "closed" }));
    },
  };
}

/** A browser may take minutes to give up a socket; whoever closes should not wait for that. */
async function within(clock: Clock, gone: Promise<void>): Promise<void> {
  let cancel: Cancel = () => {};
  const late = new Promise<void>((resolve) => {
    cancel = clock.after(2 * CLOSE_WITHIN_MS, resolve);
  });
  await Promise.race([gone, late]);
  cancel();
}
