import {
  areTraitsSmall,
  LEAVING_TAG,
  NODE_UNIT_TAG,
  TOKEN_LABEL_PREFIX,
  TRAITS_TOO_LARGE,
} from "@tenure/protocol";
import { patternProblem } from "@tenure/protocol/pattern";
import * as z from "zod";
import { didYouMean, isHostUrl, readableFile, text, weight, wholeNumber } from "./config-kinds.ts";
import { parseRunAs } from "./run-as.ts";
import { knowsPlaces, parseWords, WRAPPER_PLACES } from "./wrapper.ts";

const MS_MAX = 2_147_483_647; // Node's timers fire after 1 ms for anything longer.
/** The largest form of the agent's own tags. */
const AGENT_TAGS = {
  [NODE_UNIT_TAG]: true,
  [LEAVING_TAG]: true,
  node_unit_address: "-".repeat(44),
};
const NAME = /^[A-Za-z0-9._:@/-]{1,128}$/;

/** The variables of a node-unit. The description of each names its trade-off; `docs/config.md` shows the same text. */
export const variables = (policies: readonly string[]) =>
  z.object({ ...identityVariables(), ...claimVariables(policies), ...executionVariables() });

function identityVariables() {
  return {
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
    HOST_CA_FILE: readableFile()
      .optional()
      .describe(
        "CA of the server in PEM, in place of those that Node trusts; children get its path as `TENURE_CA_FILE`. This and the next two are read again at every connection.",
      ),
    HOST_CERT_FILE: readableFile()
      .optional()
      .describe("Client certificate, for a server with `client_ca_file`."),
    HOST_KEY_FILE: readableFile().optional().describe("Private key of `HOST_CERT_FILE`."),
    TENURE_JOIN_TOKEN: z
      .string()
      .optional()
      .describe(
        "Join token, in place of `HOST_TOKEN`: at its first start the node-unit exchanges it for a token of its own, which it keeps in its data directory. Later starts ignore it.",
      ),
    TENURE_JOIN_TOKEN_FILE: text({ lengthMax: 4096 })
      .optional()
      .describe("File with the join token, in place of `TENURE_JOIN_TOKEN`."),
    NODE_UNIT_NAME: text({ lengthMax: 128 })
      .optional()
      .describe("Display name. With a password, the node-unit's key is derived from both."),
    NODE_UNIT_PASSWORD: z
      .string()
      .optional()
      .describe(
        "Derives the key from name and password, so that a rebuilt machine keeps its address. Unset = a key file in the data directory.",
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
        "Labels as `name=value,name=value`. A deployment whose selector has other values does not run here. Names that begin with `token/` are set by the server.",
      ),
  };
}

function claimVariables(policies: readonly string[]) {
  return {
    NODE_UNIT_CLAIM_POLICY: z
      .string()
      .transform((name) => knownPolicy(name, policies) ?? name)
      .refine((name) => policies.includes(name), {
        error: ({ input }) =>
          `must be one of ${policies.join(", ")}${didYouMean(String(input).toLowerCase(), policies)}`,
      })
      .default("deployment_count")
      .describe(
        "Which node-unit claims first: the one with the fewest deployments (`deployment_count`), the least busy one (`resource_usage`), or never this one (`none`). Case does not matter.",
      ),
    NODE_UNIT_SCHEDULER_INTERVAL_MS: wholeNumber({ min: 100, max: 3_600_000 })
      .default(5000)
      .describe(
        "Time between two scheduler passes. Short claims sooner; long reduces the load of the server.",
      ),
    NODE_UNIT_CPU_WEIGHT: weight()
      .default(1)
      .describe("Share of processor use in `resource_usage`, relative to the memory weight."),
    NODE_UNIT_MEMORY_WEIGHT: weight()
      .default(1)
      .describe("Share of memory use in `resource_usage`, relative to the processor weight."),
  };
}

function executionVariables() {
  return {
    NODE_UNIT_SELF_STOP_MS: wholeNumber({ min: 100, max: MS_MAX })
      .default(30_000)
      .describe(
        "Time without contact after which deployments are stopped here; one with a longer `lost_after_ms` runs until 5 s and one grace before that. Short shortens the time two copies may overlap; long survives an outage of the server.",
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
        "Total size of installed packages above which unused ones are removed before their week is over; checked every hour. Large makes a rollback fast; small saves disk space. Packages in use are never removed.",
      ),
    NODE_UNIT_WORK_KEEP_DAYS: wholeNumber({ min: 0, max: 36_500 })
      .default(30)
      .describe(
        "How long the files of a deployment stay in `work/` after it last belonged here; 0 = always. Long keeps its files until it returns; short saves disk space.",
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
        "Command that starts each child, such as `bwrap …`, split into words without a shell. `{work_dir}`, `{packages_dir}` and `{data_dir}` in it are replaced. Unset = none.",
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
  };
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
