import { DEFAULT_TENANT, type ServerToNode, TenureError } from "@tenure/protocol";
import type { ListReader } from "./cache/list-delta.ts";
import type { ClaimOutcome } from "./store/claim-store.ts";

/** A connected node, with the fields that deployments need. */
export interface DeploymentNode {
  readonly nodeId: string;
  readonly epoch: number;
  readonly isNodeUnit: boolean;
  readonly snapshot: Omit<ListReader, "address">;
  readonly link: { send(message: ServerToNode): void };
}

export const readerOf = ({ nodeId, snapshot }: DeploymentNode): ListReader => ({
  address: nodeId,
  labels: snapshot.labels,
  trusted_package_regexp: snapshot.trusted_package_regexp,
  custom_command: snapshot.custom_command,
  tags: snapshot.tags,
  claim_policy: snapshot.claim_policy,
  tenants: snapshot.tenants ?? [DEFAULT_TENANT],
});

/** The term of a node-unit; throws `FORBIDDEN` for another node. */
export function termOf({ nodeId, epoch, isNodeUnit }: DeploymentNode) {
  if (isNodeUnit) return { address: nodeId, epoch };
  throw new TenureError("FORBIDDEN", {
    reason: "only a node-unit (tag node_unit) runs deployments",
  });
}

/** The error for a claim or release that its statement refused. */
export function refusal(
  outcome: Exclude<ClaimOutcome, { outcome: "claimed" }>,
  { address, epoch }: { address: string; epoch: number },
  candidates: number,
): TenureError {
  if (outcome.outcome === "conflict") return new TenureError("ERR_CLAIM_CONFLICT", { candidates });
  switch (outcome.why) {
    case "policy_none":
      return new TenureError("ERR_POLICY_DISABLED", { address });
    case "draining":
      return new TenureError("CONFLICT", { reason: `node ${address} is draining` });
    case "replaced":
      return new TenureError("FENCED", { resource: `node ${address}`, fencing_token: epoch });
  }
}
