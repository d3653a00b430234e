import { TenureError } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import type { Operation } from "./commit-batch.ts";
import type { SignerAccess } from "./store/nonce-store.ts";
import { readSignerTenant } from "./store/signer-store.ts";

/** Our own upkeep: every signer that exists. */
export const ALL_SIGNERS: SignerAccess = { tenant: "*" };

/** What was admitted: the tenant of the signer, and the access its commit is to be judged by. */
export interface Admission {
  tenant: string;
  access: SignerAccess;
}

export interface SignerTenants {
  /** Refuses a call about another tenant's signer, or about one that does not exist and may not be opened. */
  admit(signer: string, kind: Operation["kind"], access: SignerAccess): Promise<Admission>;
}

const REMEMBERED_MAX = 20_000;

/**
 * Keeps calls about other tenants' signers out of the queue, where they would make the signer's own callers wait. The
 * commit decides: what is remembered here saves a read per call, and may be older than a move.
 */
export function createSignerTenants(db: Db): SignerTenants {
  const remembered = new Map<string, string>();

  async function read(signer: string): Promise<string | undefined> {
    const tenant = await readSignerTenant(db, signer);
    remembered.delete(signer);
    if (tenant === undefined) return undefined;
    if (remembered.size >= REMEMBERED_MAX) remembered.delete(remembered.keys().next().value!);
    remembered.set(signer, tenant);
    return tenant;
  }

  return {
    async admit(signer, kind, access) {
      const known = remembered.get(signer);
      if (known !== undefined && covers(access, known)) {
        return { tenant: known, access: { tenant: access.tenant } };
      }
      const tenant = await read(signer);
      if (tenant !== undefined && covers(access, tenant))
        return { tenant, access: { tenant: access.tenant } };
      if (tenant === undefined && access.opensIn !== undefined && OPENING.has(kind))
        return { tenant: access.opensIn, access };
      throw refusalOf(signer, { kind }, access);
    },
  };
}

const OPENING: ReadonlySet<Operation["kind"]> = new Set(["allocate", "raise"]);

const covers = ({ tenant }: SignerAccess, signerTenant: string): boolean =>
  tenant === "*" || tenant === signerTenant;

/**
 * The same error for a signer of another tenant and for one that does not exist, so that it reveals nothing about other
 * tenants. Only a caller that may open the signer learns that another tenant has it.
 */
export function refusalOf(
  signer: string,
  operation: Pick<Operation, "kind"> & { nonce?: number },
  { tenant, opensIn }: SignerAccess,
): TenureError {
  if (operation.kind === "mark")
    return new TenureError("NOT_FOUND", { what: "signer", id: signer });
  if (opensIn !== undefined) {
    const reason = `signer ${signer} belongs to another tenant; tenure signer move gives it to ${opensIn}`;
    return new TenureError("FORBIDDEN", { reason });
  }
  const whose = tenant === "*" ? "does not exist" : `is no signer of tenant ${tenant}`;
  return new TenureError("FORBIDDEN", {
    reason: `${signer} ${whose}, and this token may not open it`,
  });
}
