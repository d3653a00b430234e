import {
  areTraitsSmall,
  LEAVING_TAG,
  NODE_UNIT_TAG,
  TOKEN_LABEL_PREFIX,
  TRAITS_TOO_LARGE,
} from "@tenure/protocol";
import { patternProblem } from "@tenure/protocol/pattern";
import * as z from "zod";
import { didYouMean, isHostUrl, text, weight, wholeNumber } from "./config-kinds.ts";
import { parseRunAs, type RunAs } from "./run-as.ts";
import { withSecretFiles } from "./secret-file.ts";
import { knowsPlaces, parseWords, WRAPPER_PLACES } from "./wrapper.ts";

/** Everything that can be set for one node-unit. Names are those of the variables, without their prefix. */
export interface AgentConfig {
  /** In order of preference; the next is tried when one does not answer. */
  host_urls: readonly string[];
  host_token?: string;
  name?: string;
  password?: string;
  data_dir: string;
  labels: Readonly<Record<string, string>>;
  /** One of the known policies, spelled as it was registered. */
  claim_policy: string;
  scheduler_interval_ms: number;
  cpu_weight: number;
  memory_weight: number;
  self_stop_ms: number;
  stop_grace_ms: number;
  start_concurrency_max: number;
  packages_max_mb: number;
  /** 0: for ever. */
  work_keep_days: number;
  /** Must match the whole of `name@version`. Absent = no package is trusted. */
  trusted_package_regexp?: string;
  custom_command: boolean;
  /** The users of the children. Absent = the agent's own. */
  run_as?: RunAs;
  /** A command, with its arguments, that every child is started by. */
  wrapper?: readonly string[];
}

export const CLAIM_POLICIES = ["deployment_count", "resource_usage", "none"] as const;

export type Environment = Readonly<Record<string, string | undefined>>;

/** Everything wrong with a node-unit's environment, at once. */
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
 * The settings of one node-unit, from its environment. Throws one `ConfigError` that names every problem; no
 * message repeats a value, because it may be a secret in the wrong place.
 */
export function readAgentConfig({
  env,
  policies = CLAIM_POLICIES,
}: {
  env: Environment;
  policies?: readonly string[];
}): AgentConfig {
  // An empty variable counts as not set: templates leave them behind.
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
  return named(parsed.data);
}

const MS_MAX = 2_147_483_647; // Timers of Node turn anything longer into 1 ms.
/** As large as the agent's own tags can be. */
const AGENT_TAGS = {
  [NODE_UNIT_TAG]: true,
  [LEAVING_TAG]: true,
  node_unit_address: "-".repeat(44),
};
const NAME = /^[A-Za-z0-9._:@/-]{1,128}$/;

/** The sentence beside each variable says what it trades; `docs/config.md` shows the same ones. */
function variables(policies: readonly string[]) {
  return z.object({
    HOST_URL: z
      .string("must be set: the server's URL, or several with commas between")
      .transform(commaSeparated)
      .refine(
        (urls) => urls.every(isHostUrl),
        "must be URLs that start with http://, https://, ws:// or wss://",
      )
      .describe(
        "The server to connect to. Several, with commas between, keep the node-unit connected while one instance is down.",
      ),
    HOST_TOKEN: z
      .string()
      .optional()
      .describe("Token with role `node`. Not needed when the server is on loopback without auth."),
    HOST_TOKEN_FILE: text({ lengthMax: 4096 })
      .optional()
      .describe(
        "File with the token, read once at the start, in place of `HOST_TOKEN`. The environment of a process can be read by every process of the same user.",
      ),
    NODE_UNIT_NAME: text({ lengthMax: 128 })
      .optional()
      .describe("Name to show. Together with the password it also makes the node-unit's key."),
    NODE_UNIT_PASSWORD: z
      .string()
      .optional()
      .describe(
        "Makes the key from name and password, so that a rebuilt machine keeps its address. Unset = a key file in the data directory.",
      ),
    NODE_UNIT_PASSWORD_FILE: text({ lengthMax: 4096 })
      .optional()
      .describe(
        "File with the password, read once at the start, in place of `NODE_UNIT_PASSWORD`.",
      ),
    NODE_UNIT_DATA_DIR: text({ lengthMax: 4096 })
      .default(".tenure-node")
      .describe("Directory of key, packages and logs. Each node-unit on a machine needs its own."),
    NODE_UNIT_LABELS: z
      .string()
      .transform(parseLabels)
      .refine(
        (labels) => labels !== undefined,
        "must be name=value pairs with commas between, each name once",
      )
      .refine(
        (labels) => !Object.keys(labels ?? {}).some((name) => name.startsWith(TOKEN_LABEL_PREFIX)),
        `must not have names that begin with ${TOKEN_LABEL_PREFIX}: the server sets those`,
      )
      .refine(
        (labels) => areTraitsSmall({ labels: labels ?? {}, tags: AGENT_TAGS }),
        `must be fewer or shorter: ${TRAITS_TOO_LARGE}`,
      )
      .transform((labels) => labels ?? {})
      .optional()
      .describe(
        "Labels as `name=value,name=value`. A deployment whose selector asks for others does not run here. Names that begin with `token/` are the server's.",
      ),
    NODE_UNIT_CLAIM_POLICY: z
      .string()
      .transform((name) => knownPolicy(name, policies) ?? name)
      .refine((name) => policies.includes(name), {
        error: ({ input }) =>
          `must be one of ${policies.join(", ")}${didYouMean(String(input).toLowerCase(), policies)}`,
      })
      .default("deployment_count")
      .describe(
        "Who claims first: the node-unit with the fewest deployments (`deployment_count`), the least busy one (`resource_usage`), or never this one (`none`). Case does not matter.",
      ),
    NODE_UNIT_SCHEDULER_INTERVAL_MS: wholeNumber({ min: 100, max: 3_600_000 })
      .default(5000)
      .describe("Time between two scheduler passes. Short claims sooner; long spares the server."),
    NODE_UNIT_CPU_WEIGHT: weight()
      .default(1)
      .describe("Share of processor use in `resource_usage`, relative to the memory weight."),
    NODE_UNIT_MEMORY_WEIGHT: weight()
      .default(1)
      .describe("Share of memory use in `resource_usage`, relative to the processor weight."),
    NODE_UNIT_SELF_STOP_MS: wholeNumber({ min: 100, max: MS_MAX })
      .default(30_000)
      .describe(
        "How long without contact before deployments are stopped here; one with a `lost_after_ms` that ends later goes on until 5 s and one grace before that. Short shortens the time two copies may overlap; long rides out an outage of the server.",
      ),
    NODE_UNIT_STOP_GRACE_MS: wholeNumber({ min: 0, max: MS_MAX })
      .default(10_000)
      .describe(
        "Time between SIGTERM and SIGKILL. Long lets a child finish; short frees the deployment sooner.",
      ),
    NODE_UNIT_START_CONCURRENCY_MAX: wholeNumber({ min: 1, max: 64 })
      .default(4)
      .describe(
        "Installs and starts at the same time. More fills an empty machine sooner; fewer leaves room for what already runs.",
      ),
    NODE_UNIT_PACKAGES_MAX_MB: wholeNumber({ min: 0, max: 1_000_000_000 })
      .default(10_240)
      .describe(
        "Size of all installed packages above which unused ones are removed before their week is over, looked at every hour. Large makes a rollback quick; small spares the disk. What is in use is never removed.",
      ),
    NODE_UNIT_WORK_KEEP_DAYS: wholeNumber({ min: 0, max: 36_500 })
      .default(30)
      .describe(
        "How long the files of a deployment stay in `work/` after it was last wanted here; 0 = for ever. Long keeps what it wrote for its return; short spares the disk.",
      ),
    NODE_UNIT_RUN_AS: z
      .string()
      .transform((value, context) => {
        const runAs = parseRunAs(value);
        if (!("problem" in runAs)) return runAs;
        context.addIssue({ code: "custom", message: runAs.problem });
        return z.NEVER;
      })
      .optional()
      .describe(
        "User of the children: `user`, `user:group`, or `per-deployment:FIRST-LAST` for a uid of its own for each deployment; the agent must run as root. Unset = the agent's own user, whose token, key and other children each child can then read.",
      ),
    NODE_UNIT_WRAPPER: z
      .string()
      .transform((value) => parseWords(value))
      .refine(
        (words) => words?.every(knowsPlaces) ?? false,
        `must be a command with its arguments, quotes closed; of words in braces only ${WRAPPER_PLACES.join(", ")}`,
      )
      .transform((words) => words ?? [])
      .optional()
      .describe(
        "Command that each child is started by, such as `bwrap …`, split into words without a shell. `{work_dir}`, `{packages_dir}` and `{data_dir}` in it are replaced. Unset = none.",
      ),
    TRUSTED_PACKAGE_REGEXP: z
      .string()
      .refine((pattern) => patternProblem(pattern) === undefined, {
        error: ({ input }) => patternProblem(String(input)) ?? "",
      })
      .optional()
      .describe(
        "Packages that may be installed here: must match the whole `name@version`. A regular expression in RE2 syntax: no lookahead, lookbehind or backreference. Unset = none. Each match is code that runs on this machine.",
      ),
    ENABLE_CUSTOM_COMMAND: z
      .enum(["true", "false"], "must be true or false")
      .transform((value) => value === "true")
      .default(false)
      .describe(
        "`true` lets a deployment name any command, and set variables that change which code is loaded (`NODE_OPTIONS`, `LD_PRELOAD`, `PATH`, …). An admin of the server can then run anything here.",
      ),
  });
}

function named(given: z.infer<ReturnType<typeof variables>>): AgentConfig {
  return {
    host_urls: given.HOST_URL,
    ...(given.HOST_TOKEN !== undefined && { host_token: given.HOST_TOKEN }),
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

/** One variable, as the documentation shows it. */
export interface AgentVariable {
  name: string;
  required: boolean;
  /** `undefined` = not set unless somebody sets it. */
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
    problems.push("NODE_UNIT_PASSWORD needs NODE_UNIT_NAME: the key is made from both");
  const weights = [given.NODE_UNIT_CPU_WEIGHT, given.NODE_UNIT_MEMORY_WEIGHT];
  if (weights.every((text) => Number.parseFloat(text ?? "1") === 0))
    problems.push("NODE_UNIT_CPU_WEIGHT and NODE_UNIT_MEMORY_WEIGHT must not both be 0");
  return problems;
}

function commaSeparated(list: string): string[] {
  return list.split(",").map((entry) => entry.trim());
}

function parseLabels(list: string): Record<string, string> | undefined {
  const pairs = commaSeparated(list).map((pair) => /^([^=]+)=(.{0,128})$/.exec(pair));
  const labels = Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? "", pair?.[2] ?? ""]));
  const names = Object.keys(labels);
  return names.length === pairs.length && names.every((name) => NAME.test(name))
    ? labels
    : undefined;
}

function knownPolicy(name: string, policies: readonly string[]): string | undefined {
  return policies.find((policy) => policy.toLowerCase() === name.toLowerCase());
}
