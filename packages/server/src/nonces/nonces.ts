import {
  type Actor,
  NONCE_WAIT_MS_DEFAULT,
  type NonceAllocation,
  type NonceRecord,
  type NonceStatus,
  ROUTES,
  type Route,
  type SignerView,
  TenureError,
} from "@tenure/protocol";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { type Random, uuid7 } from "../kernel/random.ts";
import { every } from "../kernel/service.ts";
import type { Db } from "../store/db.ts";
import type { Operation, OperationResult } from "./commit-batch.ts";
import { createNonceQueue, type QueueObserver } from "./commit-scheduler.ts";
import { type Forwarded, type ForwardedCall, forward } from "./forward.ts";
import { createGuardedCommit } from "./guarded-commit.ts";
import type { MarkEvent } from "./nonce.ts";
import { renderAllocation, renderNonce, renderSigner } from "./render.ts";
import { createRouting, type Peer, type Routing } from "./signer-routing.ts";
import { type Admission, ALL_SIGNERS, createSignerTenants } from "./signer-tenants.ts";
import {
  countOpenNonces,
  forgetOldNonces,
  type NonceRules,
  type SignerAccess,
  signersWithExpiredHolds,
} from "./store/nonce-store.ts";
import {
  listNonces,
  listNoncesIn,
  listSigners,
  moveSigner,
  readSigner,
  readSignerTenant,
} from "./store/signer-store.ts";
import type { Timeline } from "./timeline.ts";

export interface NoncesOptions {
  mode: "basic" | "worker_queue";
  instanceId: string;
  bootId: string;
  leaseTtlMs: number;
  queueMax: number;
  rules: NonceRules;
  /** For writes: its time limits are below the lease's. */
  db: Db;
  timeline: Timeline;
  clock: Clock;
  random: Random;
  log: Log;
  peerToken: string;
  liveInstances(): Promise<Peer[]>;
  observe: QueueObserver & {
    moved(signer: string, from: string, to: string, actor?: Actor): void;
    counted(open: Record<"held" | "released" | "quarantined", number>, depth: number): void;
  };
}

/** How a write arrived. */
export interface Arrival {
  /** It has had its one hop. */
  forwarded: boolean;
  access: SignerAccess;
  /** How long to wait for somebody else's lease. */
  waitMs?: number | undefined;
  /** Of a write that leaves an audit entry: it goes with the request to the signer's owner. */
  actor?: Actor | undefined;
}

export interface Nonces {
  allocate(
    ask: { signer: string; requestId: string; count?: number | undefined },
    arrival: Arrival,
  ): Promise<NonceAllocation[]>;
  mark(mark: SignerMark, arrival: Arrival): Promise<NonceRecord>;
  /** Raises the cursor and settles what is open below it; further than `ahead_max` only when `confirmed`. */
  raise(
    ask: { signer: string; nextNonce: number; confirmed: boolean },
    arrival: Arrival,
  ): Promise<SignerView>;
  /** Reads see the signers of one tenant, or of all (`*`). */
  read(signer: string, tenant: string): Promise<SignerView>;
  list(page: { fromSigner: string; limit: number; tenant: string }): Promise<SignerView[]>;
  /** Gives a signer with all its numbers to another tenant. */
  move(move: {
    signer: string;
    from: string;
    to: string;
    actor?: Actor | undefined;
  }): Promise<SignerView>;
  listNonces(page: {
    signer: string;
    tenant: string;
    status: NonceStatus | undefined;
    fromNonce: number;
    limit: number;
  }): Promise<NonceRecord[]>;
  start(): void;
  stop(): Promise<void>;
}

export interface SignerMark {
  signer: string;
  nonce: number;
  event: MarkEvent;
  holdId?: string;
  txHash?: string;
  reason?: string;
}

// A restart of Postgres is to be seen before much is written after it.
const TIMELINE_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 2_000;
const SWEEP_SIGNERS_MAX = 200;
const RETENTION_INTERVAL_MS = 600_000;
const RETENTION_ROWS_MAX = 5_000;
// A peer may use all of the caller's patience on the lease; what is on top is for the way and the commit.
const FORWARD_SLACK_MS = 1_000;

/** Numbers for signers. The two modes differ in who does the work and who keeps the lease; the writes are the same. */
export function createNonces(options: NoncesOptions): Nonces {
  const { db, clock, random, log, rules, instanceId, leaseTtlMs } = options;
  const routing = options.mode === "worker_queue" ? createRouting(options) : undefined;
  const queue = createNonceQueue({
    ownerNode: `${instanceId}/${options.bootId}`,
    leaseTtlMs,
    queueMax: options.queueMax,
    rules,
    clock,
    commit: createGuardedCommit({ db, rules, timeline: options.timeline }),
    keeps: (signer) => routing?.isOurs(signer) ?? false,
    observe: options.observe,
  });

  const tenants = createSignerTenants(db);

  async function perform(
    signer: string,
    operation: Operation,
    { waitMs, access }: Pick<Arrival, "waitMs"> & Admission,
  ) {
    return queue.submit(signer, operation, waitMs ?? NONCE_WAIT_MS_DEFAULT, access);
  }

  /** By the owner, when that is another instance and answers; else here. The owner judges the same access again. */
  async function byOwner<const R extends Route>(
    signer: string,
    arrival: Arrival & Admission,
    call: Pick<ForwardedCall<R>, "route" | "params" | "query" | "body">,
  ): Promise<Forwarded<R>> {
    const peer = arrival.forwarded ? undefined : await routing?.peerOf(signer);
    if (!peer || !knowsTenant(peer, arrival.tenant))
      return { outcome: "unanswered", reason: "ours" };
    const timeoutMs = (arrival.waitMs ?? NONCE_WAIT_MS_DEFAULT) + FORWARD_SLACK_MS;
    const identity = { instanceId, peerToken: options.peerToken, actor: arrival.actor };
    const { access } = arrival;
    const answer = await forward(peer, { ...call, access, timeoutMs }, identity);
    if (answer.outcome === "unanswered") doubt(routing!, peer, answer.reason);
    return answer;
  }

  function doubt(routing: Routing, peer: Peer, reason: string): void {
    routing.doubt(peer.instance_id);
    log.warn(
      { event: "peer.doubted", peer: peer.instance_id, reason },
      "the owner of a signer did not answer; the work is done here",
    );
  }

  const onError = (error: unknown) =>
    log.warn({ event: "nonces.not-tended", error }, "will try again");
  const services = [
    every(Math.min(leaseTtlMs / 6, 1_000), () => queue.tend(), { clock, onError }),
    every(TIMELINE_INTERVAL_MS, () => options.timeline.tick(), { clock, onError }),
    every(SWEEP_INTERVAL_MS, sweep, { clock, onError }),
    every(RETENTION_INTERVAL_MS, retain, { clock, onError }),
  ];

  /**
   * Settles holds that ran out at signers that get no requests. Each instance does so for its own signers, by the instances
   * that are live now: an idle one would otherwise go by the list of its last request, and leave those of a dead peer.
   */
  async function sweep(): Promise<void> {
    await routing?.refreshKnown();
    const signers = await signersWithExpiredHolds(db, SWEEP_SIGNERS_MAX);
    const ours = signers.filter((signer) => routing?.isOurs(signer) ?? true);
    await Promise.allSettled(
      ours.map((signer) => queue.submit(signer, { kind: "tend" }, 0, ALL_SIGNERS)),
    );
    options.observe.counted(await countOpenNonces(db), queue.depth);
  }

  async function retain(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await forgetOldNonces(db, RETENTION_ROWS_MAX)));
  }

  return {
    async allocate({ signer, requestId, count }, arrival) {
      const admitted = await admit(signer, "allocate", arrival);
      const answer = await byOwner(signer, admitted, {
        route: ROUTES.allocateNonces,
        params: { signer },
        query: arrival.waitMs === undefined ? {} : { wait_ms: arrival.waitMs },
        body: { request_id: requestId, count },
      });
      if (answer.outcome === "answered")
        return "items" in answer.value ? answer.value.items : [answer.value];
      const holdIds = Array.from({ length: count ?? 1 }, () => uuid7(random, clock.wallMs()));
      const done = await perform(signer, { kind: "allocate", requestId, holdIds }, admitted);
      return expect(done, "allocated").nonces.map((nonce) => renderAllocation(signer, nonce));
    },
    async mark({ signer, ...mark }, arrival) {
      const admitted = await admit(signer, "mark", arrival);
      const answer = await byOwner(signer, admitted, {
        route: MARK_ROUTE[mark.event],
        params: { signer, nonce: mark.nonce },
        body: markBody(mark),
      });
      if (answer.outcome === "answered") return answer.value;
      const done = await perform(signer, { kind: "mark", ...mark }, admitted);
      return renderNonce(expect(done, "marked").row);
    },
    async raise({ signer, nextNonce, confirmed }, arrival) {
      const admitted = await admit(signer, "raise", arrival);
      const answer = await byOwner(signer, admitted, {
        route: ROUTES.raiseSigner,
        params: { signer },
        body: { next_nonce: nextNonce, confirm: confirmed },
      });
      if (answer.outcome === "answered") return answer.value;
      await perform(signer, { kind: "raise", nextNonce, confirmed }, admitted);
      return read(signer, admitted.tenant);
    },
    read,
    list: async (page) => (await listSigners(db, page)).map(renderSigner),
    async move({ signer, from, to, actor }) {
      const former = await moveSigner(db, { signer, from, to });
      if (former === undefined) throw absent(signer);
      if (former !== to) options.observe.moved(signer, former, to, actor);
      return read(signer, to);
    },
    async listNonces({ status, tenant, ...page }) {
      const owner = await readSignerTenant(db, page.signer);
      // Not an error: the chain probe lists an account before its first number, and another tenant's looks the same.
      if (owner === undefined || !["*", owner].includes(tenant)) return [];
      const rows = await (status ? listNoncesIn(db, { ...page, status }) : listNonces(db, page));
      return rows.map(renderNonce);
    },
    start() {
      for (const service of services) service.start();
    },
    async stop() {
      await Promise.all(services.map((service) => service.stop()));
      await queue.stop();
    },
  };

  async function admit(signer: string, kind: Operation["kind"], arrival: Arrival) {
    return { ...arrival, ...(await tenants.admit(signer, kind, arrival.access)) };
  }

  async function read(signer: string, tenant: string): Promise<SignerView> {
    const row = await readSigner(db, signer, tenant);
    if (!row) throw absent(signer);
    return renderSigner(row);
  }
}

/** A server of 0.1 knows no tenants; it may do the work of `default` only. */
const knowsTenant = ({ version }: Peer, tenant: string): boolean =>
  tenant === "default" || !version?.startsWith("0.1.");

const absent = (signer: string): TenureError =>
  new TenureError("NOT_FOUND", { what: "signer", id: signer });

const MARK_ROUTE = {
  use: ROUTES.markNonceUsed,
  recycle: ROUTES.markNonceRecyclable,
  resolve_consumed: ROUTES.resolveNonce,
  resolve_released: ROUTES.resolveNonce,
} as const satisfies Record<MarkEvent, Route>;

function markBody({ event, holdId, txHash, reason }: Omit<SignerMark, "signer">) {
  switch (event) {
    case "use":
      return { hold_id: holdId, tx_hash: txHash };
    case "recycle":
      return { hold_id: holdId, reason };
    case "resolve_consumed":
      return { status: "CONSUMED", reason };
    case "resolve_released":
      return { status: "RELEASED", reason };
  }
}

function expect<Kind extends OperationResult["kind"]>(
  result: OperationResult,
  kind: Kind,
): Extract<OperationResult, { kind: Kind }> {
  if (result.kind !== kind) throw new Error(`${result.kind} answers ${kind}`);
  return result as Extract<OperationResult, { kind: Kind }>;
}
