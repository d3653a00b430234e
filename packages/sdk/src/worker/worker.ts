import type { NodeRegister } from "@tenure/protocol";
import { type NodeFeature, TenureError } from "@tenure/protocol";
import { checkTls } from "#tls";
import { openBlockingSocket } from "#websocket";
import { type Clock, systemClock } from "../clock.ts";
import type { ConnectionState, ConnectionTuning } from "../connection/connection.ts";
import { createUrlRing, urlsOf } from "../connection/urls.ts";
import { randomId } from "../random-id.ts";
import type { Run } from "./attempt.ts";
import { Attempts } from "./attempts.ts";
import { createNodeConnection, type NodeConnection, type NodeEvents } from "./node-connection.ts";
import { createEphemeralKey, type NodeKey } from "./node-key.ts";

export interface WorkerOptions<Payload = unknown> extends ConnectionTuning {
  /** An instance, or several in order of preference. */
  url: string | readonly string[];
  token?: string | undefined;
  pools: readonly string[];
  /** Jobs that run at once. */
  capacity: number;
  /** Services it has ready; a function is called for every heartbeat. */
  services?: readonly string[] | (() => readonly string[]);
  labels?: Record<string, string>;
  name?: string;
  version?: string;
  tags?: NodeRegister["tags"];
  /** Its identity. A new key per process when left out. */
  key?: NodeKey;
  /**
   * Runs one job and returns the body of the result. A thrown error fails the job: its `code` is kept, and
   * `retryable: true` sends the job to another node.
   */
  run: Run<Payload>;
  /**
   * Set it when `run` computes for seconds without awaiting anything. The connection then runs in a thread of its own, which
   * answers the server meanwhile; otherwise such a worker counts as lost after 10 s. Best with `capacity: 1`. Node only.
   */
  blocking?: boolean;
  outboxMax?: number;
  on?: Pick<NodeEvents, "ready" | "down" | "state" | "control" | "problem">;
}

export interface WorkerCloseOptions {
  /** How long running jobs may continue. Jobs that have not ended by then go to another node. */
  withinMs?: number;
}

const CLOSE_WITHIN_MS = 30_000;
/** How long to wait for the acknowledgement of the last results, when `withinMs` is over. */
const LAST_ACK_MS = 2_000;
const OUTBOX_MAX = 1_000;
const SLOT_WITHIN_MS = 2_000;

/** A process that runs jobs. It connects at once and reconnects without limit. */
export class Worker<Payload = unknown> {
  readonly #clock: Clock;
  readonly #attempts: Attempts;
  #connection: NodeConnection | undefined;
  #isDraining = false;
  #closed: Promise<void> | undefined;

  constructor(options: WorkerOptions<Payload>) {
    // Validates URLs and certificates, so that a mistake throws here and not in the background.
    createUrlRing(urlsOf(options.url), "/ws/node");
    if (options.tls) checkTls(options.tls);
    if (!options.key && !globalThis.crypto.subtle)
      throw new TenureError("INVALID_REQUEST", {
        reason: "key: required where crypto.subtle is missing, as in a page over plain http",
      });
    this.#clock = options.clock ?? systemClock;
    this.#attempts = new Attempts({
      clock: this.#clock,
      ...limitsOf(options),
      run: options.run as Run<never>,
      send: (message) => this.#connection?.send(message) ?? "not_connected",
      sendFrame: (frame) => this.#connection?.sendFrame(frame) ?? "not_connected",
      isDeferring: () => this.#connection?.isGranted("deferred_start") ?? false,
      onProblem: (error) => options.on?.problem?.(error),
      onStuck: () => this.#connection?.heartbeat(),
      // The socket thread repeats the last heartbeat while a run blocks this thread, so it must list that run.
      ...(options.blocking && { onRun: () => this.#connection?.heartbeat() }),
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

  /** Number of its jobs: queued, running, or ended and not acknowledged. */
  get held(): number {
    return this.#attempts.list().length;
  }

  /** Takes no more jobs, waits for the running ones, and disconnects. */
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
      features: featuresOf(options),
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
          // The jobs belong to the process that took the address.
          if (down.kind === "replaced") this.#attempts.abandon(replaced());
          on.down?.(down);
        },
        message: (message) => {
          if (message.type !== "deployments_changed") this.#attempts.receive(message);
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
      await this.#within(LAST_ACK_MS, drained);
    }
    await this.#connection?.close();
    this.#attempts.abandon(new TenureError("CONFLICT", { reason: "the worker was closed" }));
  }

  /** Resolves to whether the event happened in time. */
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

/** Closes the worker on SIGTERM or SIGINT. A second signal ends the process at once. Does nothing in a browser. */
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

function limitsOf({ capacity, outboxMax = OUTBOX_MAX }: WorkerOptions<never>) {
  if (!Number.isSafeInteger(capacity) || capacity < 1)
    throw new TenureError("INVALID_REQUEST", {
      reason: `capacity: must be an integer of at least 1, got ${String(capacity)}`,
    });
  return { capacity, outboxMax, slotWithinMs: SLOT_WITHIN_MS };
}

/** A run that blocks this thread would keep its start, and the jobs behind it, from being reported. */
function featuresOf({ blocking }: WorkerOptions<never>): NodeFeature[] {
  return blocking ? ["ack_lists"] : ["ack_lists", "deferred_start"];
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
  new TenureError("CONFLICT", { reason: "another process took over this worker's address" });
