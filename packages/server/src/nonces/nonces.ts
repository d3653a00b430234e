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
import type { Service } from "../kernel/service.ts";
import type { PeerFetch } from "../peers/peer-fetch.ts";
import type { Db } from "../store/db.ts";
import type { Operation, OperationResult } from "./commit-batch.ts";
import { CommitScheduler } from "./commit-scheduler.ts";
import { type ForwardableRoute, type ForwardedCall, forward, type ReplyOf } from "./forward.ts";
import { createGuardedCommit } from "./guarded-commit.ts";
import type { MarkEvent } from "./nonce.ts";
import type { NonceEvents } from "./nonce-events.ts";
import { renderAllocation, renderNonce, renderSigner } from "./render.ts";
import type { CommitContext } from "./signer-commit.ts";
import { createSignerRouting, type Peer, type SignerRouting } from "./signer-routing.ts";
import { type Admission, createSignerTenants } from "./signer-tenants.ts";
import type { NonceRules, SignerAccess } from "./store/nonce-store.ts";
import {
  listNonces,
  listNoncesIn,
  listSigners,
  moveSigner,
  readSigner,
  readSignerTenant,
} from "./store/signer-store.ts";
import type { Timeline } from "./timeline.ts";
import { createNonceUpkeep, type UpkeepOptions } from "./upkeep.ts";

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
  peerFetch?: PeerFetch | undefined;
  liveInstances(): Promise<Peer[]>;
  telemetry: CommitContext["telemetry"] & UpkeepOptions["telemetry"];
  events: NonceEvents;
}

/** How a write arrived. */
export interface Arrival {
  /** Forwarded by a peer: it is done here. */
  forwarded: boolean;
  access: SignerAccess;
  /** How long to wait for a lease of another instance. */
  waitMs?: number | undefined;
  /** For the audit entry; it goes with a forwarded request to the signer's owner. */
  actor?: Actor | undefined;
}

export interface Nonces extends Service {
  allocate(
    ask: { signer: string; requestId: string; count?: number | undefined },
    arrival: Arrival,
  ): Promise<NonceAllocation[]>;
  mark(mark: SignerMark, arrival: Arrival): Promise<NonceRecord>;
  /** Raises the cursor and marks every open nonce below it CONSUMED; further than `ahead_max` only when `confirmed`. */
  raise(
    ask: { signer: string; nextNonce: number; confirmed: boolean },
    arrival: Arrival,
  ): Promise<SignerView>;
  /** Reads see the signers of one tenant, or of all tenants (`*`). */
  read(signer: string, tenant: string): Promise<SignerView>;
  list(page: { fromSigner: string; limit: number; tenant: string }): Promise<SignerView[]>;
  /** Gives a signer with all its nonces to another tenant. */
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
}

export interface SignerMark {
  signer: string;
  nonce: number;
  event: MarkEvent;
  holdId?: string;
  txHash?: string;
  reason?: string;
}

// The peer may spend the caller's whole wait on the lease; the rest is for the network and the commit.
const FORWARD_SLACK_MS = 1_000;

/**
 * Allocates nonces of signers and tracks what becomes of them. In Basic mode each instance does the work of its callers; in
 * Worker-Queue mode the instance that a signer is routed to does it and keeps the lease. The writes are the same.
 */
export function createNonces(options: NoncesOptions): Nonces {
  const { db, clock, random, rules, instanceId, timeline } = options;
  const routing = options.mode === "worker_queue" ? createSignerRouting(options) : undefined;
  const scheduler = new CommitScheduler({
    ...options,
    ownerNode: `${instanceId}/${options.bootId}`,
    commit: createGuardedCommit({ db, rules, timeline }),
    keeps: (signer) => routing?.isOurs(signer) ?? false,
  });
  const tenants = createSignerTenants(db);
  const upkeep = createNonceUpkeep({ ...options, scheduler, routing });
  const askOwner = createOwnerCalls(options, routing);

  /** Admits a write, then tries the signer's owner. Without a reply from there, the caller goes on with `submit`. */
  async function write<const R extends ForwardableRoute>(
    signer: string,
    kind: Operation["kind"],
    arrival: Arrival,
    call: OwnerCall<R>,
  ) {
    const { tenant, access } = await tenants.admit(signer, kind, arrival.access);
    const reply = await askOwner(signer, { ...arrival, tenant, access }, call);
    const waitMs = arrival.waitMs ?? NONCE_WAIT_MS_DEFAULT;
    const submit = (operation: Operation) => scheduler.submit(signer, operation, waitMs, access);
    return { tenant, reply, submit };
  }

  async function read(signer: string, tenant: string): Promise<SignerView> {
    const row = await readSigner(db, signer, tenant);
    if (!row) throw absent(signer);
    return renderSigner(row);
  }

  return {
    async allocate({ signer, requestId, count }, arrival) {
      const { reply, submit } = await write(signer, "allocate", arrival, {
        route: ROUTES.allocateNonces,
        params: { signer },
        query: arrival.waitMs === undefined ? {} : { wait_ms: arrival.waitMs },
        body: { request_id: requestId, count },
      });
      if (reply) return "items" in reply ? reply.items : [reply];
      const holdIds = Array.from({ length: count ?? 1 }, () => uuid7(random, clock.wallMs()));
      const result = await submit({ kind: "allocate", requestId, holdIds });
      return expect(result, "allocated").nonces.map((nonce) => renderAllocation(signer, nonce));
    },
    async mark({ signer, ...mark }, arrival) {
      const { reply, submit } = await write(signer, "mark", arrival, {
        route: MARK_ROUTE[mark.event],
        params: { signer, nonce: mark.nonce },
        body: markBody(mark),
      });
      return reply ?? renderNonce(expect(await submit({ kind: "mark", ...mark }), "marked").row);
    },
    async raise({ signer, nextNonce, confirmed }, arrival) {
      const { reply, submit, tenant } = await write(signer, "raise", arrival, {
        route: ROUTES.raiseSigner,
        params: { signer },
        body: { next_nonce: nextNonce, confirm: confirmed },
      });
      if (reply) return reply;
      await submit({ kind: "raise", nextNonce, confirmed });
      return read(signer, tenant);
    },
    read,
    list: async (page) => (await listSigners(db, page)).map(renderSigner),
    async move({ signer, from, to, actor }) {
      const former = await moveSigner(db, { signer, from, to });
      if (former === undefined) throw absent(signer);
      if (former !== to) options.events.moved(signer, former, to, actor);
      return read(signer, to);
    },
    async listNonces({ status, tenant, ...page }) {
      const owner = await readSignerTenant(db, page.signer);
      // Not an error: the chain probe lists an account before its first nonce, and another tenant's signer looks the same.
      if (owner === undefined || !["*", owner].includes(tenant)) return [];
      const rows = await (status ? listNoncesIn(db, { ...page, status }) : listNonces(db, page));
      return rows.map(renderNonce);
    },
    start: upkeep.start,
    async stop() {
      await upkeep.stop();
      await scheduler.stop();
    },
  };
}

type OwnerCall<R extends ForwardableRoute> = Omit<ForwardedCall<R>, "access" | "timeoutMs">;

/** Calls the owner of a signer. Resolves to undefined when the work is to be done here: no peer owns it, or none answers. */
function createOwnerCalls(options: NoncesOptions, routing: SignerRouting | undefined) {
  const { instanceId, peerToken, peerFetch, log } = options;

  return async <const R extends ForwardableRoute>(
    signer: string,
    arrival: Arrival & Admission,
    call: OwnerCall<R>,
  ): Promise<ReplyOf<R> | undefined> => {
    const peer = arrival.forwarded ? undefined : await routing?.peerOf(signer);
    if (!peer || !knowsTenant(peer, arrival.tenant)) return undefined;
    const { access, actor, waitMs = NONCE_WAIT_MS_DEFAULT } = arrival;
    const timeoutMs = waitMs + FORWARD_SLACK_MS;
    const identity = { instanceId, peerToken, peerFetch, actor };
    const answer = await forward(peer, { ...call, access, timeoutMs }, identity);
    if (answer.outcome === "answered") return answer.reply;
    routing?.doubt(peer.instance_id);
    log.warn(
      { event: "peer.doubted", peer: peer.instance_id, reason: answer.reason },
      "the owner of a signer did not answer; this instance does the work",
    );
    return undefined;
  };
}

/** A server of 0.1 knows no tenants: it is asked about signers of `default` only. */
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
  if (result.kind !== kind) throw new Error(`expected the result ${kind}, got ${result.kind}`);
  return result as Extract<OperationResult, { kind: Kind }>;
}
