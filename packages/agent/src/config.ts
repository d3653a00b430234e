import { resolve } from "node:path";
import type * as z from "zod";
import { didYouMean } from "./config-kinds.ts";
import { variables } from "./config-variables.ts";
import type { RunAs } from "./run-as.ts";
import { withSecretFiles } from "./secret-file.ts";

/** The settings of a node-unit. Names are those of the variables, without their prefix. */
export interface AgentConfig {
  /** In order of preference; the agent connects to the next if one does not answer. */
  host_urls: readonly string[];
  host_token?: string;
  /** CA of the servers, in place of those that Node trusts. */
  host_ca_file?: string;
  /** Client certificate and its key. */
  host_cert_file?: string;
  host_key_file?: string;
  /** Exchanged for a token of its own at the first start. */
  join_token?: string;
  name?: string;
  password?: string;
  data_dir: string;
  labels: Readonly<Record<string, string>>;
  /** The name of a policy, as it was registered. */
  claim_policy: string;
  scheduler_interval_ms: number;
  cpu_weight: number;
  memory_weight: number;
  self_stop_ms: number;
  stop_grace_ms: number;
  start_concurrency_max: number;
  packages_max_mb: number;
  /** 0: always. */
  work_keep_days: number;
  /** Must match the whole of `name@version`. Absent = no package is trusted. */
  trusted_package_regexp?: string;
  custom_command: boolean;
  /** The users of the children. Absent = the agent's own. */
  run_as?: RunAs;
  /** The command and arguments that start each child. */
  wrapper?: readonly string[];
}

export const CLAIM_POLICIES = ["deployment_count", "resource_usage", "none"] as const;

export type Environment = Readonly<Record<string, string | undefined>>;

/** All problems of a node-unit's environment. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(
      problems.length === 1
        ? `The node-unit's environment has a problem: ${problems[0]}`
        : `The node-unit's environment has ${problems.length} problems:\n${problems.map((problem) => `  - ${problem}`).join("\n")}`,
    );
    this.problems = problems;
  }
}

/**
 * Reads the settings of a node-unit from its environment. Throws one `ConfigError` with every problem. No message repeats
 * a value, because a secret may be in the wrong variable.
 */
export function readAgentConfig({
  env,
  policies = CLAIM_POLICIES,
}: {
  env: Environment;
  policies?: readonly string[];
}): AgentConfig {
  // An empty variable counts as not set, because templates produce them.
  const set = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ""));
  const { given, fileProblems } = withSecretFiles(set);
  const parsed = variables(policies).safeParse(given);
  const values = parsed.success
    ? []
    : parsed.error.issues.map((issue) => `${issue.path.join(" ")} ${issue.message}`);
  const problems = [
    ...new Set([...unknownVariables(env), ...fileProblems, ...values, ...badRelations(given)]),
  ];
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems);
  return configOf(parsed.data);
}

function configOf(given: z.infer<ReturnType<typeof variables>>): AgentConfig {
  return {
    host_urls: given.HOST_URL,
    ...(given.HOST_TOKEN !== undefined && { host_token: given.HOST_TOKEN }),
    ...(given.HOST_CA_FILE !== undefined && { host_ca_file: resolve(given.HOST_CA_FILE) }),
    ...(given.HOST_CERT_FILE !== undefined && { host_cert_file: given.HOST_CERT_FILE }),
    ...(given.HOST_KEY_FILE !== undefined && { host_key_file: given.HOST_KEY_FILE }),
    ...(given.TENURE_JOIN_TOKEN !== undefined && { join_token: given.TENURE_JOIN_TOKEN }),
    ...(given.NODE_UNIT_NAME !== undefined && { name: given.NODE_UNIT_NAME }),
    ...(given.NODE_UNIT_PASSWORD !== undefined && { password: given.NODE_UNIT_PASSWORD }),
    data_dir: given.NODE_UNIT_DATA_DIR,
    labels: given.NODE_UNIT_LABELS ?? {},
    claim_policy: given.NODE_UNIT_CLAIM_POLICY,
    scheduler_interval_ms: given.NODE_UNIT_SCHEDULER_INTERVAL_MS,
    cpu_weight: given.NODE_UNIT_CPU_WEIGHT,
    memory_weight: given.NODE_UNIT_MEMORY_WEIGHT,
    self_stop_ms: given.NODE_UNIT_SELF_STOP_MS,
    stop_grace_ms: given.NODE_UNIT_STOP_GRACE_MS,
    start_concurrency_max: given.NODE_UNIT_START_CONCURRENCY_MAX,
    packages_max_mb: given.NODE_UNIT_PACKAGES_MAX_MB,
    work_keep_days: given.NODE_UNIT_WORK_KEEP_DAYS,
    ...(given.TRUSTED_PACKAGE_REGEXP !== undefined && {
      trusted_package_regexp: given.TRUSTED_PACKAGE_REGEXP,
    }),
    custom_command: given.ENABLE_CUSTOM_COMMAND,
    ...(given.NODE_UNIT_RUN_AS !== undefined && { run_as: given.NODE_UNIT_RUN_AS }),
    ...(given.NODE_UNIT_WRAPPER !== undefined && { wrapper: given.NODE_UNIT_WRAPPER }),
  };
}

/** A variable as the documentation shows it. */
export interface AgentVariable {
  name: string;
  required: boolean;
  /** `undefined`: no default. */
  default: unknown;
  summary: string;
}

export const AGENT_VARIABLES: readonly AgentVariable[] = Object.entries(
  variables(CLAIM_POLICIES).shape,
).map(([name, schema]) => {
  const unset = schema.safeParse(undefined);
  return { name, required: !unset.success, default: unset.data, summary: schema.description ?? "" };
});

function unknownVariables(env: Environment): string[] {
  const known = AGENT_VARIABLES.map(({ name }) => name);
  return Object.keys(env)
    .filter((name) => name.startsWith("NODE_UNIT_") && !known.includes(name))
    .map((name) => `${name} is not a setting${didYouMean(name, known)}`);
}

function badRelations(given: Environment): string[] {
  const problems: string[] = [];
  if (given.NODE_UNIT_PASSWORD !== undefined && given.NODE_UNIT_NAME === undefined)
    problems.push("NODE_UNIT_PASSWORD requires NODE_UNIT_NAME: the key is derived from both");
  if ((given.HOST_CERT_FILE === undefined) !== (given.HOST_KEY_FILE === undefined))
    problems.push("HOST_CERT_FILE and HOST_KEY_FILE must be set together");
  if (given.HOST_TOKEN !== undefined && given.TENURE_JOIN_TOKEN !== undefined)
    problems.push("HOST_TOKEN and TENURE_JOIN_TOKEN must not both be set");
  const weights = [given.NODE_UNIT_CPU_WEIGHT, given.NODE_UNIT_MEMORY_WEIGHT];
  if (weights.every((text) => Number.parseFloat(text ?? "1") === 0))
    problems.push("NODE_UNIT_CPU_WEIGHT and NODE_UNIT_MEMORY_WEIGHT must not both be 0");
  return problems;
}
