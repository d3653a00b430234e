import {
  type CallParams,
  type CallResult,
  DEFAULT_TENANT,
  type DeploymentTerm,
  type NodeTraits,
  serves,
  TenureError,
  unfitness,
  type ViewState,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { Clock } from "../kernel/clock.ts";
import type { Db } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import type { CachedDeployments } from "./cache/cached-deployments.ts";
import { type DeploymentNode, readerOf, refusal, termOf } from "./deployment-node.ts";
import type { NodeTerm } from "./deployment-row.ts";
import { createReleaseFlight } from "./release-flight.ts";
import { createSilentLossWait } from "./silent-loss-wait.ts";
import { listRefused, releaseLost, releaseRefused } from "./store/claim-store.ts";
import { giveBack } from "./store/give-back-store.ts";

export interface ReleaseOptions {
  db: Db;
  clock: Clock;
  cached: CachedDeployments;
  view: () => ViewState;
  /** Losses within this time count together for the mass-loss brake; undefined: the brake is switched off. */
  brakeTtlMs: number | undefined;
  /** Wakes every node-unit, so that each requests its release again. */
  wakeAll: () => void;
  telemetry: Pick<Telemetry, "deploymentsReleased">;
}

/** Answers `deployment.release`: frees the deployments of lost nodes, and those that a stopping node gives back. */
export function createRelease(options: ReleaseOptions) {
  const { db, clock, cached, telemetry } = options;
  const { cache } = cached;
  const waitAfterSilentLoss = createSilentLossWait({ db, clock, wake: options.wakeAll });
  const releaseOnce = createReleaseFlight({
    owns: cache.owns,
    async run({ node, ...caller }: NodeTerm & { node: DeploymentNode }, addresses) {
      const skipped = [...cache.skipped()].map(({ id }) => id);
      const { brakeTtlMs } = options;
      const freed = await releaseLost(db, caller, addresses, { except: skipped, brakeTtlMs });
      if (freed.outcome === "refused") return freed;
      if (freed.waitsSince) void waitAfterSilentLoss(freed.waitsSince);
      const refused = await releaseRefused(db, caller, await releasableRefused(node, addresses));
      const released = [...freed.released, ...refused];
      if (released.length > 0) await cached.refresh();
      return { ...freed, released };
    },
  });

  /** Rows that their present owner refused and may not run, and that this node may. */
  async function releasableRefused(node: DeploymentNode, addresses: readonly string[]) {
    const refused = await listRefused(db, addresses);
    return refused.filter(({ id, revision, owner }) => {
      const row = cache.get(id);
      if (row?.revision !== revision || row.skipped) return false;
      const isFit = (traits: NodeTraits) => unfitness(row, traits, matchWhole).length === 0;
      return isFit(readerOf(node)) && !isFit(owner);
    });
  }

  async function releaseStopped(term: NodeTerm, stopped: DeploymentTerm[]) {
    const given = await giveBack(db, term, stopped);
    if (given.outcome === "refused") throw refusal(given, term, 0);
    if (given.released.length > 0) await cached.refresh();
    telemetry.deploymentsReleased.inc(given.released.length);
    return { released: given.released };
  }

  return async (
    node: DeploymentNode,
    { addresses, stopped }: CallParams<"deployment.release">,
  ): Promise<CallResult<"deployment.release">> => {
    const term = termOf(node);
    if (node.snapshot.claim_policy === "none")
      throw new TenureError("ERR_POLICY_DISABLED", { address: term.address });
    if (stopped) return releaseStopped(term, stopped);
    // The list of members may be incomplete now: an absent node is not known to be lost.
    if (options.view() !== "ready") return { released: [] };
    const freed = await releaseOnce({ ...term, node }, addresses);
    if (!freed) return { released: [] };
    if (freed.outcome === "refused") throw refusal(freed, term, 0);
    telemetry.deploymentsReleased.inc(freed.released.length);
    const isServed = ({ id }: DeploymentTerm) =>
      serves(node.snapshot.tenants, cache.get(id)?.tenant ?? DEFAULT_TENANT);
    const released = freed.released.filter(isServed);
    return { released: released.map(({ id, generation }) => ({ id, generation })) };
  };
}
