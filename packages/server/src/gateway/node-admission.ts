import {
  isNodeUnit,
  type NodeRegister,
  PROTOCOL_VERSION,
  TenureError,
  TOKEN_LABEL_PREFIX,
} from "@tenure/protocol";
import type { Principal } from "../access/principal.ts";
import type { Challenge } from "./challenge.ts";

/** Checks the signature, the protocol version and the token of a registration. Returns the token's limits. */
export function admitNode(
  message: NodeRegister,
  challenge: Challenge,
  principal: Principal | undefined,
): Principal {
  const { address, boot_id, signature, protocol_version } = message;
  if (!challenge.answer({ address, bootId: boot_id, signature })) {
    throw new TenureError("UNAUTHENTICATED", {
      reason: "the signature does not match the address",
    });
  }
  if (protocol_version !== PROTOCOL_VERSION) {
    throw new TenureError("UNSUPPORTED_VERSION", {
      offered: protocol_version,
      supported: PROTOCOL_VERSION,
    });
  }
  if (!principal) throw new TenureError("UNAUTHENTICATED", { reason: "a valid token is needed" });
  if (principal.role !== "node" && principal.role !== "admin") {
    throw new TenureError("FORBIDDEN", {
      reason: `role ${principal.role} may not connect as a node`,
    });
  }
  const beyond = beyondToken(message, principal);
  if (beyond) throw new TenureError("FORBIDDEN", { reason: `this token does not allow ${beyond}` });
  return principal;
}

/** What the registration asks for beyond the limits of its token. */
function beyondToken(
  message: NodeRegister,
  { addresses, pools, node_unit, capacity_max, node_name }: Principal,
): string | undefined {
  if (addresses && !addresses.includes(message.address)) return `the address ${message.address}`;
  if (node_name !== undefined && node_name !== message.name) return `the name ${message.name}`;
  const pool = pools && message.pools?.find((name) => !pools.includes(name));
  if (pool !== undefined) return `the pool ${pool}`;
  // A token with pools is for workers: node-units receive the secrets of deployments.
  const allowsUnits = node_unit ?? pools === undefined;
  if (!allowsUnits && isNodeUnit(message.tags)) return "being a node-unit";
  if (capacity_max !== undefined && (message.capacity ?? 0) > capacity_max)
    return `more than ${capacity_max} slots`;
  const own = Object.keys(message.labels ?? {}).find((name) => name.startsWith(TOKEN_LABEL_PREFIX));
  if (own !== undefined) return `the label ${own}: only the server sets ${TOKEN_LABEL_PREFIX}`;
  return undefined;
}

/**
 * The labels that the token gives the node. An agent of 0.1 does not know them: it would claim deployments that the labels
 * select and then reject them.
 */
export function tokenLabels(
  { tags, token_labels }: NodeRegister,
  principal: Principal | undefined,
): Record<string, string> | undefined {
  if (!principal?.labels || (isNodeUnit(tags) && !token_labels)) return undefined;
  const entries = Object.entries(principal.labels);
  return Object.fromEntries(
    entries.map(([name, value]) => [TOKEN_LABEL_PREFIX + name, value] as const),
  );
}
