import type { NodeRegister } from "@tenure/protocol";
import { TenureError } from "@tenure/protocol";
import { openBlockingSocket } from "#websocket";
import { type Clock, systemClock } from "../clock.ts";
import type { ConnectionState, ConnectionTuning } from "../connection/connection.ts";
import { createUrlRing, urlsOf } from "../connection/urls.ts";
import { randomId } from "../random-id.ts";
import { type AttemptLimits, type Attempts, createAttempts, type Run } from "./attempts.ts";
import { createEphemeralKey } from "./ephemeral-key.ts";
import {
  createNodeConnection,
  type NodeConnection,
  type NodeEvents,
  type NodeKey,
} from "./node-connection.ts";

export interface WorkerOptions<Payload = unknown> extends ConnectionTuning {
  /** An instance, or several in order of preference. */
  url: string | readonly string[];
  token?: string | undefined;
  pools: readonly string[];
  /** Jobs that run at once. */
  capacity: number;
  /** What it has ready; a function is asked at every heartbeat. */
  services?: readonly string[] | (() => readonly string[]);
  labels?: Record<string, string>;
  name?: string;
  version?: string;
  tags?: NodeRegister["tags"];
  /** Who it is. A new key per process when left out. */
  key?: NodeKey;
  /**
   * Does one job; what it returns is the body of the result. What it throws is its failure: an error with a `code`
   * keeps it, and `retryable: true` sends the job to another node.
   */
  run: Run<Payload>;
  /**
   * Set it when `run` computes for seconds without awaiting anything. The connection then lives in a thread of its own, which
   * answers the server meanwhile; without it such a worker counts as lost after 10 s. Best with `capacity: 1`. Node only.
   */
  blocking?: boolean;
  outboxMax?: number;
  on?: Pick<NodeEvents, "ready" | "down" | "state" | "control" | "problem">;
}

export interface WorkerCloseOptions {
  /** How long what runs may go on. What has not ended then goes to another node. */
  withinMs?: number;
}

const CLOSE_WITHIN_MS = 30_000;
/** For the last results to be acknowledged, when time is up. */
const FAREWELL_MS = 2_000;
const OUTBOX_MAX = 1_000;
const PLACE_WITHIN_MS = 2_000;

/** A process that runs jobs. It connects at once, and again for as long as it takes. */
export class Worker<Payload = unknown> {
  readonly #clock: Clock;
  readonly #attempts: Attempts;
  #connection: NodeConnection | undefined;
  #isDraining = false;
  #closed: Promise<void> | undefined;

  constructor(options: WorkerOptions<Payload>) {
    // Checked here, so that a mistake is thrown where it is made and not lost in the background.
    createUrlRing(urlsOf(options.url), "/ws/node");
    if (!options.key && !globalThis.crypto.subtle)
      throw new TenureError("INVALID_REQUEST", {
        reason: "key: must be given where crypto.subtle is missing, as in a page over plain http",
      });
    this.#clock = options.clock ?? systemClock;
    this.#attempts = createAttempts({
      clock: this.#clock,
      limits: limitsOf(options),
      run: options.run as Run<never>,
      send: (message) => this.#connection?.send(message) ?? "not_connected",
      sendFrame: (frame) => this.#connection?.sendFrame(frame) ?? "not_connected",
      problem: (error) => options.on?.problem?.(error),
      stuck: () => this.#connection?.heartbeat(),
      // The thread repeats the last heartbeat while a run blocks this one, so it must name that run.
      ...(options.blocking && { runs: () => this.#connection?.heartbeat() }),
    });
    this.#connect(options).catch((error: unknown) =>
      options.on?.problem?.(
        new TenureError("INTERNAL", { reason: String(error) }, { cause: error }),
      ),
    );
  }

  get state(): ConnectionState {
    return this.#connection?.state ?? (this.#closed ? "closed" : "idle");
  }

  /** Its address, while it is connected. */
  get nodeId(): string | undefined {
    return this.#connection?.registration?.node_id;
  }

  /** Jobs that are here: running, or ended and not yet acknowledged. */
  get held(): number {
    return this.#attempts.list().length;
  }

  /** Takes nothing more, lets what runs end, and leaves. */
  close(options: WorkerCloseOptions = {}): Promise<void> {
    this.#closed ??= this.#drainAndLeave(options.withinMs ?? CLOSE_WITHIN_MS);
    return this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #connect(options: WorkerOptions<Payload>): Promise<void> {
    const key = options.key ?? (await createEphemeralKey());
    if (this.#closed) return;
    this.#connection = this.#createConnection(options, key);
    this.#connection.start();
  }

  #createConnection(options: WorkerOptions<Payload>, key: NodeKey): NodeConnection {
    const { url, token, on = {}, services: _, run: __, blocking: ___, ...tuning } = options;
    const services = servicesOf(options);
    return createNodeConnection({
      ...(options.blocking && { openSocket: openBlockingSocket }),
      ...tuning,
      urls: urlsOf(url),
      key,
      token,
      bootId: randomId(),
      describe: () => describe(options),
      running: () => this.#attempts.inUse(),
      draining: () => this.#isDraining,
      ...(services && { services }),
      on: {
        ...on,
        ready: (registration) => {
          this.#attempts.ready();
          on.ready?.(registration);
        },
        down: (down) => {
          // Its slots and its jobs belong to that other process now.
          if (down.kind === "replaced") this.#attempts.abandon(replaced());
          on.down?.(down);
        },
        message: (message) => {
          if (message.type !== "deployments_changed") this.#attempts.heard(message);
        },
        refused: (message) => this.#attempts.refused(message),
      },
    });
  }

  async #drainAndLeave(withinMs: number): Promise<void> {
    this.#isDraining = true;
    this.#connection?.heartbeat();
    const drained = this.#attempts.drain();
    if (!(await this.#within(withinMs, drained))) {
      this.#attempts.giveBack();
      await this.#within(FAREWELL_MS, drained);
    }
    await this.#connection?.close();
    this.#attempts.abandon(new TenureError("CONFLICT", { reason: "the worker was closed" }));
  }

  /** True when it happened in time. */
  #within(ms: number, event: Promise<void>): Promise<boolean> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(ms, () => resolve(false));
      void event.then(() => {
        cancel();
        resolve(true);
      });
    });
  }
}

/** Closes the worker when the process is asked to end. A second signal ends it at once. Does nothing in a browser. */
export function closeOnSignal(
  worker: Pick<Worker, "close">,
  { signals = ["SIGTERM", "SIGINT"], ...options }: SignalOptions = {},
): void {
  const { process } = globalThis as { process?: Pick<NodeJS.Process, "once"> };
  for (const signal of signals) process?.once(signal, () => void worker.close(options));
}

export interface SignalOptions extends WorkerCloseOptions {
  signals?: readonly NodeJS.Signals[];
}

function limitsOf({ capacity, outboxMax = OUTBOX_MAX }: WorkerOptions<never>): AttemptLimits {
  if (!Number.isSafeInteger(capacity) || capacity < 1)
    throw new TenureError("INVALID_REQUEST", { reason: "capacity: must be a whole number from 1" });
  return { capacity, outboxMax, placeWithinMs: PLACE_WITHIN_MS };
}

function servicesOf({ services }: WorkerOptions<never>): (() => readonly string[]) | undefined {
  if (services === undefined) return undefined;
  return typeof services === "function" ? services : () => services;
}

function describe(options: WorkerOptions<never>) {
  const { name = "worker", version = "0", tags = {}, labels, pools, capacity } = options;
  const services = servicesOf(options)?.();
  return {
    name,
    version,
    tags,
    pools: [...pools],
    capacity,
    ...(labels && { labels }),
    ...(services && { services: [...services] }),
  };
}

const replaced = (): TenureError =>
  new TenureError("CONFLICT", { reason: "another process has this worker's address" });
