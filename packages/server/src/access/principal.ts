import { ANY_TENANT, DEFAULT_TENANT, type Role } from "@tenure/protocol";

/** The caller, as its token describes it; the local operator where no token is configured. */
export interface Principal {
  name: string;
  role: Role;
  tenant: string;
  /** Of a `signer` token: the signers it may open. */
  signers?: readonly string[] | undefined;
  /** The tenants that a node of this token serves. */
  tenants?: readonly string[] | undefined;
  // What a `node` token is limited to. Absent = no limit.
  addresses?: string[] | undefined;
  pools?: string[] | undefined;
  node_unit?: boolean | undefined;
  capacity_max?: number | undefined;
  labels?: Record<string, string> | undefined;
  nodes_max?: number | undefined;
  /** The name that its node must have. */
  node_name?: string | undefined;
  /** Of the secret that was presented. Never part of an answer. */
  sha256?: string | undefined;
  /** Of a child: its deployment. `pools` and `signers` are its grants then. */
  deployment?: { id: string; name: string } | undefined;
  /** Whether it may act on what all tenants share. With a single tenant every admin may. */
  operates?: boolean;
}

/** The name of the children of a deployment, in all its terms: they read the jobs that former ones submitted. */
export const childName = (deploymentId: string): string => `deployment:${deploymentId}`;

/** A caller without a token, on a public route. */
export const ANONYMOUS: Principal = { name: "anonymous", role: "viewer", tenant: DEFAULT_TENANT };

/** Every caller, where no token is configured. */
export const OPERATOR: Principal = {
  ...{ name: "local operator", role: "admin", tenant: DEFAULT_TENANT },
  operates: true,
};

/** Whether requests of this principal may be forwarded ones. Without tokens, instances send none to each other either. */
export const mayForward = (principal: Principal): boolean =>
  principal.role === "peer" || principal === OPERATOR;

/** Whether it may name any tenant and move things between tenants. */
export const isOfAllTenants = (principal: Principal): boolean =>
  principal.tenant === ANY_TENANT || principal === OPERATOR;

/** The tenants named by tokens, each once; `*` and peer tokens name none. */
export function tenantsOf(
  tokens: readonly Pick<Principal, "role" | "tenant" | "tenants">[],
): string[] {
  const named = tokens
    .filter(({ role }) => role !== "peer")
    .flatMap(({ tenant, tenants = [] }) => [tenant, ...tenants]);
  return [...new Set(named)].filter((tenant) => tenant !== ANY_TENANT);
}
