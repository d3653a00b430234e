import {
  type CallParams,
  type CallResult,
  DEFAULT_TENANT,
  type DeploymentTerm,
  type NodeTraits,
  type ResourceUsage,
  type ServerToNode,
  serves,
  TenureError,
  unfitness,
  type ViewState,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { appendEventOnce } from "../store/event-store.ts";
import type { Assignment } from "./assignment.ts";
import {
  type CopyLook,
  createDeploymentCopy,
  type DeploymentCopy,
} from "./cache/deployment-cache-refresh.ts";
import {
  answerList,
  currentRevision,
  type ListReader,
  type WrittenList,
} from "./cache/list-delta.ts";
import { type Wake, wakeFor } from "./cache/wake.ts";
import type { NodeTerm } from "./deployment-row.ts";
import { createReleases } from "./releases.ts";
import { refuseStranger } from "./report-admission.ts";
import { reportEvent } from "./report-event.ts";
import { daemonTwins, rowProblems } from "./row-problems.ts";
import { createSilentLossWait } from "./silent-loss-wait.ts";
import {
  type ClaimOutcome,
  claimFirstFree,
  listRefused,
  releaseLost,
  releaseRefused,
  reserveFirst,
} from "./store/claim-store.ts";
import { giveBack } from "./store/give-back-store.ts";
import {
  beginPinnedMoves,
  dropDeadMoves,
  finishPinnedMoves,
  giveMoveBack,
  markMoveReady,
  markStopped,
} from "./store/move-store.ts";
import { appendReportEvent } from "./store/report-event-store.ts";
import { type RecordedReport, recordReport } from "./store/status-store.ts";

/** A connected node, as far as deployments care. */
export interface DeploymentNode {
  readonly nodeId: string;
  readonly epoch: number;
  readonly isNodeUnit: boolean;
  readonly snapshot: Omit<ListReader, "address">;
  readonly link: { send(message: ServerToNode): void };
}

export interface DeploymentCounts {
  onClaim(result: "claimed" | "conflict" | "refused"): void;
  onReleased(count: number): void;
  onReport(result: "recorded" | "fenced"): void;
  onList(answer: "unchanged" | "delta" | "full"): void;
  onRows(assignment: Assignment, count: number): void;
}

export interface DeploymentsOptions {
  /** Names this boot of this instance. */
  origin: string;
  db: PostgresStore;
  clock: Clock;
  log: Log;
  view: () => ViewState;
  /** Within how long losses count together for the mass-loss brake; undefined where it is switched off. */
  brakeTtlMs: number | undefined;
  connected: () => readonly DeploymentNode[];
  /** Fresh samples by address, of everybody in the fleet. */
  samples: (tenants: readonly string[] | undefined) => Record<string, ResourceUsage>;
  counts: DeploymentCounts;
  /** A deployment, or what nodes say of it, is not what it was. */
  onChange: (id: string, op: "changed" | "removed", tenants: readonly string[]) => void;
}

type NodeAnswer<M extends `deployment.${string}` & keyof AllCalls> = (
  node: DeploymentNode,
  params: CallParams<M>,
) => Promise<CallResult<M>>;
type AllCalls = Record<
  | "deployment.list"
  | "deployment.release"
  | "deployment.claim"
  | "deployment.reserve"
  | "deployment.report",
  unknown
>;

export interface Deployments extends Service {
  readonly copy: DeploymentCopy;
  list(node: DeploymentNode, params: CallParams<"deployment.list">): Promise<WrittenList>;
  release: NodeAnswer<"deployment.release">;
  claim: NodeAnswer<"deployment.claim">;
  reserve: NodeAnswer<"deployment.reserve">;
  report: NodeAnswer<"deployment.report">;
}

const MOVES_INTERVAL_MS = 5_000;

/** What node-units ask of the deployments: read the list, free what is lost, claim one, say how it runs. */
export function createDeployments(options: DeploymentsOptions): Deployments {
  const { origin, db, clock, log, counts } = options;
  const copy = createDeploymentCopy({ db, clock, log, onLook });
  const waitAfterSilentLoss = createSilentLossWait({
    db,
    clock,
    wake: () => tell([{ tenants: undefined, everybody: true, nodes: [] }]),
  });
  const moves = every(MOVES_INTERVAL_MS, sweepMoves, {
    clock,
    onError: (error) =>
      log.warn({ event: "moves.not-swept", error }, "reservations of lost nodes are kept"),
  });

  async function sweepMoves(): Promise<void> {
    await dropDeadMoves(db);
    await finishPinnedMoves(db);
    await beginPinnedMoves(db);
  }

  async function onLook({ changes, reported }: CopyLook): Promise<void> {
    tell(changes.map(({ before, after }) => wakeFor(before, after)));
    for (const { id, before, after } of changes) {
      options.onChange(id, after ? "changed" : "removed", tenantsOf(after ?? before));
      // One that went to another tenant is gone for the one it left.
      if (before && after && before.tenant !== after.tenant)
        options.onChange(id, "removed", tenantsOf(before));
    }
    for (const id of reported) options.onChange(id, "changed", tenantsOf(copy.log.get(id)));
    for (const assignment of ["unassigned", "assigned", "disabled", "daemon", "invalid"] as const)
      counts.onRows(assignment, copy.log.count(assignment));
    for (const { before, after } of changes) {
      if (!after) continue;
      if (after.skipped && after.skipped.message !== before?.skipped?.message)
        log.error(
          { event: after.skipped.event, code: after.skipped.code, deploymentId: after.id },
          after.skipped.message,
        );
      const problems = [...rowProblems(after), ...daemonTwins(after, copy.log.rows())];
      for (const problem of problems) await appendEventOnce(db, problem);
    }
  }

  /** One message per node, however much changed. */
  function tell(wakes: Wake[]): void {
    const forAll = wakes.filter((wake) => wake.everybody);
    const isAbout = ({ snapshot }: DeploymentNode, { tenants }: Wake): boolean =>
      tenants?.some((tenant) => serves(snapshot.tenants, tenant)) ?? true;
    const named = new Set(wakes.flatMap((wake) => wake.nodes));
    for (const node of options.connected()) {
      if (!node.isNodeUnit) continue;
      if (!named.has(node.nodeId) && !forAll.some((wake) => isAbout(node, wake))) continue;
      const revision = currentRevision(copy.log, origin, readerOf(node));
      node.link.send({ type: "deployments_changed", revision });
    }
  }

  const release = createReleases({
    owns: copy.log.owns,
    async run({ node, ...caller }: NodeTerm & { node: DeploymentNode }, addresses) {
      const skipped = [...copy.log.skipped()].map(({ id }) => id);
      const freed = await releaseLost(db, caller, addresses, {
        except: skipped,
        brakeTtlMs: options.brakeTtlMs,
      });
      if (freed.outcome === "refused") return freed;
      if (freed.waitsSince) void waitAfterSilentLoss(freed.waitsSince);
      const refused = await releaseRefused(db, caller, await judgeRefused(node, addresses));
      const released = [...freed.released, ...refused];
      if (released.length > 0) await copy.refresh();
      return { ...freed, released };
    },
  });

  /** Rows of present owners that may not run them, and that this node may. */
  async function judgeRefused(node: DeploymentNode, addresses: readonly string[]) {
    const refused = await listRefused(db, addresses);
    return refused.filter(({ id, revision, owner }) => {
      const row = copy.log.get(id);
      if (row?.revision !== revision || row.skipped) return false;
      const isFit = (traits: NodeTraits) => unfitness(row, traits, matchWhole).length === 0;
      return isFit(readerOf(node)) && !isFit(owner);
    });
  }

  async function take(
    node: DeploymentNode,
    candidates: DeploymentTerm[],
    statement: typeof claimFirstFree,
  ): Promise<DeploymentTerm> {
    const { nodeId: address, epoch } = unitOf(node);
    const taken = await statement(db, { address, epoch }, candidates);
    counts.onClaim(taken.outcome);
    if (taken.outcome !== "claimed") throw refusal(taken, { address, epoch, candidates });
    // Its next `deployment.list` must have the row, or the node would not know what to start.
    await copy.refresh();
    return taken.claim;
  }

  return {
    copy,
    async list(node, { revision }) {
      unitOf(node);
      // Whoever comes from another instance may have seen more than our copy has: an older list would make it
      // stop what it has just claimed.
      if (!revision?.startsWith(`${origin}.`)) await copy.refresh();
      if (!copy.isRead())
        throw new TenureError("DEPENDENCY_DOWN", {
          dependency: "postgres",
          reason: "the deployments have not been read yet",
        });
      const { log: changes } = copy;
      const reader = readerOf(node);
      const answer = answerList({
        log: changes,
        origin,
        reader,
        revision,
        matches: matchWhole,
        samples: options.samples,
      });
      counts.onList(answer.answer);
      return answer;
    },
    async release(node, { addresses, stopped }) {
      const { nodeId: address, epoch } = unitOf(node);
      if (node.snapshot.claim_policy === "none")
        throw new TenureError("ERR_POLICY_DISABLED", { address });
      if (stopped) return releaseStopped({ address, epoch }, stopped);
      // The list of members may be incomplete now: an absent node is not known to be lost.
      if (options.view() !== "ready") return { released: [] };
      const freed = await release({ address, epoch, node }, addresses);
      if (!freed) return { released: [] };
      if (freed.outcome === "refused") throw refusal(freed, { address, epoch, candidates: [] });
      counts.onReleased(freed.released.length);
      const isServed = ({ id }: DeploymentTerm) =>
        serves(node.snapshot.tenants, copy.log.get(id)?.tenant ?? DEFAULT_TENANT);
      const released = freed.released.filter(isServed);
      return { released: released.map(({ id, generation }) => ({ id, generation })) };
    },
    claim: (node, { candidates }) => take(node, candidates, claimFirstFree),
    reserve: (node, { candidates }) => take(node, candidates, reserveFirst),
    async report(node, report) {
      const { nodeId: address, epoch } = unitOf(node);
      const { deployment_id: id, generation } = report;
      await refuseStranger(copy, readerOf(node), report);
      const recorded = await recordReport(db, { address, epoch }, report);
      counts.onReport(recorded?.current ? "recorded" : "fenced");
      if (!recorded) throw new TenureError("NOT_FOUND", { what: "deployment", id });
      if (!recorded.current) {
        throw new TenureError("FENCED", {
          resource: `deployment ${id}`,
          fencing_token: generation,
        });
      }
      const event = reportEvent({ address, report, recorded });
      if (event) await appendReportEvent(db, event, !recorded.was_stable);
      await move({ id, address, generation }, report.state, recorded);
      const { lost_after_ms } = report;
      return lost_after_ms === undefined ? {} : { lost_after_ms };
    },
    start() {
      copy.start();
      moves.start();
    },
    async stop() {
      await Promise.all([copy.stop(), moves.stop()]);
    },
  };

  async function releaseStopped(caller: NodeTerm, stopped: DeploymentTerm[]) {
    const given = await giveBack(db, caller, stopped);
    if (given.outcome === "refused") throw refusal(given, { ...caller, candidates: [] });
    if (given.released.length > 0) await copy.refresh();
    counts.onReleased(given.released.length);
    return { released: given.released };
  }

  /** A report may be a step of a handing over; see docs/protocol.md. */
  async function move(
    step: { id: string; address: string; generation: number },
    state: CallParams<"deployment.report">["state"],
    { address, moving_to, move_state }: RecordedReport,
  ): Promise<void> {
    if (moving_to === "") return;
    if (step.address === moving_to) {
      if (state === "failed" || state === "refused") await giveMoveBack(db, step);
      else if (state === "stopped" && move_state === "installing") await markMoveReady(db, step);
    } else if (
      step.address === address &&
      (state === "stopped" || state === "refused") &&
      move_state === "ready"
    ) {
      await markStopped(db, step);
    }
  }
}

const tenantsOf = (row: { tenant?: string | undefined } | undefined): string[] =>
  row ? [row.tenant ?? DEFAULT_TENANT] : [];

const readerOf = ({ nodeId, snapshot }: DeploymentNode): ListReader => ({
  address: nodeId,
  labels: snapshot.labels,
  trusted_package_regexp: snapshot.trusted_package_regexp,
  custom_command: snapshot.custom_command,
  claim_policy: snapshot.claim_policy,
  tenants: snapshot.tenants ?? [DEFAULT_TENANT],
});

function unitOf(node: DeploymentNode): DeploymentNode {
  if (node.isNodeUnit) return node;
  throw new TenureError("FORBIDDEN", {
    reason: "only a node-unit (tag node_unit) runs deployments",
  });
}

function refusal(
  outcome: Exclude<ClaimOutcome, { outcome: "claimed" }>,
  { address, epoch, candidates }: { address: string; epoch: number; candidates: unknown[] },
): TenureError {
  if (outcome.outcome === "conflict")
    return new TenureError("ERR_CLAIM_CONFLICT", { candidates: candidates.length });
  switch (outcome.why) {
    case "policy_none":
      return new TenureError("ERR_POLICY_DISABLED", { address });
    case "draining":
      return new TenureError("CONFLICT", { reason: `node ${address} is draining` });
    case "replaced":
      return new TenureError("FENCED", { resource: `node ${address}`, fencing_token: epoch });
  }
}
