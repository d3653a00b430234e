import { TenureError } from "@tenure/protocol";
import type { Principal } from "../access/principal.ts";
import { coversSigner } from "./signer-access.ts";

// What a child may do with its token. All other callers pass.

const forbidden = (reason: string): TenureError => new TenureError("FORBIDDEN", { reason });

/** A child checks the fence of its own deployment only. */
export function requireOwnDeployment({ role, deployment }: Principal, idOrName: string): void {
  if (role !== "child") return;
  if (deployment && [deployment.id, deployment.name].includes(idOrName)) return;
  throw forbidden("the token of a child is for its own deployment");
}

export function requireGrantedPool({ role, pools = [] }: Principal, pool: string): void {
  if (role === "child" && !pools.includes(pool))
    throw forbidden(`the deployment has no grant for the pool ${pool}`);
}

export function requireGrantedSigner({ role, signers = [] }: Principal, signer: string): void {
  if (role === "child" && !signers.some((pattern) => coversSigner(pattern, signer)))
    throw forbidden(`the deployment has no grant for the signer ${signer}`);
}

interface Granted {
  pools?: readonly string[] | undefined;
  signers?: readonly string[] | undefined;
}

/** A caller grants only what its own token allows. A token without a list allows all of its tenant. */
export function requireMayGrant(
  { pools, signers }: Pick<Principal, "pools" | "signers">,
  grants: Granted = {},
): void {
  const pool = pools && grants.pools?.find((one) => !pools.includes(one));
  if (pool !== undefined) throw forbidden(`this token may not grant the pool ${pool}`);
  const signer =
    signers && grants.signers?.find((one) => !signers.some((own) => contains(own, one)));
  if (signer !== undefined) throw forbidden(`this token may not grant the signer ${signer}`);
}

/** Whether every signer of the second pattern is one of the first. */
const contains = (outer: string, inner: string): boolean =>
  outer.endsWith("*") ? inner.startsWith(outer.slice(0, -1)) : outer === inner;
