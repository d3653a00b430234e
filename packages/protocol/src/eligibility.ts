import type { ListedDeployment, StoredDeployment } from "./deployment.ts";
import { loaderVariables } from "./loader-env.ts";
import type { Member } from "./node.ts";
import { SECRETS_TAG, secretsOf } from "./secrets/secret.ts";
import { serves } from "./tenants.ts";

// Which node may run which deployment. Every node-unit decides it for all others, and the server to explain a state: they
// must agree, so there is one function.

/** The name in a selector that means the address of the node instead of a label. */
export const ADDRESS_SELECTOR = "address";

export type NodeTraits = Pick<
  Member,
  "address" | "labels" | "trusted_package_regexp" | "custom_command" | "tenants"
> & { tags?: Member["tags"] | undefined };
export type RunSpec = Pick<
  StoredDeployment,
  "selector" | "package_name" | "package_version" | "command"
> &
  Partial<Pick<ListedDeployment, "env" | "loader_env" | "uses_secrets">> & {
    tenant?: string | undefined;
  };

export type Unfitness =
  | "tenant_not_served"
  | "selector_mismatch"
  | "version_not_exact"
  | "package_untrusted"
  | "command_not_allowed"
  | "env_not_allowed"
  | "secrets_not_supported"
  | "nothing_to_run";

/** Of a node's `trusted_package_regexp`, in UTF-16 units. */
export const PATTERN_LENGTH_MAX = 1_024;

/** Whether `text` as a whole matches: `matchWhole` of `@tenure/protocol/pattern`, which browsers do not load. */
export type MatchWhole = (pattern: string, text: string) => boolean;

/** The reasons for which this node may not run this deployment; empty when it may. */
export function unfitness(spec: RunSpec, node: NodeTraits, matches: MatchWhole): Unfitness[] {
  const found: Unfitness[] = [];
  if (!isServed(spec, node)) found.push("tenant_not_served");
  if (!selects(spec.selector, node)) found.push("selector_mismatch");
  if (spec.command !== "" && !node.custom_command) found.push("command_not_allowed");
  if (!node.custom_command && loadersOf(spec).length > 0) found.push("env_not_allowed");
  if (usesSecrets(spec) && !takesSecrets(node)) found.push("secrets_not_supported");
  if (spec.package_name !== "") {
    if (!isExactVersion(spec.package_version)) found.push("version_not_exact");
    else if (!trusts(spec, node, matches)) found.push("package_untrusted");
  } else if (spec.command === "") found.push("nothing_to_run");
  return found;
}

/** If the tenants of the node or the tenant of the row are unknown, the server decides. */
const isServed = ({ tenant }: RunSpec, { tenants }: NodeTraits): boolean =>
  tenant === undefined || tenants === undefined || serves(tenants, tenant);

/** The variables of `env` that a node without custom commands refuses; by their names where `env` itself is not shown. */
export const loadersOf = ({ env, loader_env }: RunSpec): readonly string[] =>
  env ? loaderVariables(env) : (loader_env ?? []);

/** Whether `env` refers to a secret. */
export const usesSecrets = ({ env, uses_secrets }: RunSpec): boolean =>
  env ? secretsOf(env).length > 0 : uses_secrets === true;

/** Whether the node gets the values of secrets. An agent of 0.1.0 does not. */
export const takesSecrets = ({ tags }: Pick<NodeTraits, "tags">): boolean =>
  tags?.[SECRETS_TAG] === true;

/** Whether the node has every label of the selector; an empty selector matches every node (R7). */
export function selects(
  selector: Readonly<Record<string, string>>,
  { address, labels }: Pick<NodeTraits, "address" | "labels">,
): boolean {
  return Object.entries(selector).every(([name, value]) =>
    name === ADDRESS_SELECTOR
      ? value === address
      : Object.hasOwn(labels, name) && labels[name] === value,
  );
}

/** Whether it is a plain version. An alias (`npm:other@1`), a range, a tag or a URL could install other code. */
export function isExactVersion(version: string): boolean {
  return /^\d{1,10}\.\d{1,10}\.\d{1,10}(-[0-9A-Za-z.-]{1,64})?(\+[0-9A-Za-z.-]{1,64})?$/.test(
    version,
  );
}

/** Explains why a version is not exact. */
export const notExact = (version = ""): string =>
  `package_version: must be an exact version such as 1.4.2, instead got ${JSON.stringify(version)}`;

const trusts = (
  { package_name, package_version }: RunSpec,
  { trusted_package_regexp }: NodeTraits,
  matches: MatchWhole,
): boolean =>
  trusted_package_regexp !== "" &&
  matches(trusted_package_regexp, `${package_name}@${package_version}`);
