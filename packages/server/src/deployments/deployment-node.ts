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

/** A heartbeat replaces the snapshot and keeps these. */
const READ = [
  ...(["labels", "trusted_package_regexp", "custom_command"] as const),
  ...(["tags", "claim_policy", "tenants"] as const),
];
const readers = new WeakMap<object, { snapshot: DeploymentNode["snapshot"]; reader: ListReader }>();

/** The same object as long as the node is described by the same: what is derived from it is kept with it. */
export function readerOf({ nodeId, snapshot, link }: DeploymentNode): ListReader {
  const known = readers.get(link);
  if (known?.snapshot === snapshot) return known.reader;
  const isSame =
    known?.reader.address === nodeId &&
    READ.every((field) => known.snapshot[field] === snapshot[field]);
  const reader = isSame ? known.reader : newReader(nodeId, snapshot);
  readers.set(link, { snapshot, reader });
  return reader;
}

const newReader = (address: string, snapshot: DeploymentNode["snapshot"]): ListReader => ({
  address,
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
