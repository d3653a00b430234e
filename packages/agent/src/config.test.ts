import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  AGENT_VARIABLES,
  type AgentVariable,
  ConfigError,
  type Environment,
  readAgentConfig,
} from "./config.ts";

const HOST = { HOST_URL: "http://127.0.0.1:7070" };
const SECRET = "correct-horse-battery-staple";

describe("a node-unit's environment", () => {
  test("requires only the server's URL", () => {
    expect(readAgentConfig({ env: HOST })).toEqual({
      host_urls: ["http://127.0.0.1:7070"],
      data_dir: ".tenure-node",
      labels: {},
      claim_policy: "deployment_count",
      scheduler_interval_ms: 5000,
      cpu_weight: 1,
      memory_weight: 1,
      self_stop_ms: 30_000,
      stop_grace_ms: 10_000,
      start_concurrency_max: 4,
      packages_max_mb: 10_240,
      work_keep_days: 30,
      custom_command: false,
    });
  });

  test("can set everything", () => {
    const env = {
      HOST_URL: "ws://a:1, wss://b:2/base",
      HOST_TOKEN: SECRET,
      NODE_UNIT_NAME: "rack 4",
      NODE_UNIT_PASSWORD: "pw",
      NODE_UNIT_DATA_DIR: "/var/lib/unit",
      NODE_UNIT_LABELS: "zone=eu-1,disk=ssd=fast, empty=",
      NODE_UNIT_CLAIM_POLICY: "Resource_Usage",
      NODE_UNIT_SCHEDULER_INTERVAL_MS: "250",
      NODE_UNIT_CPU_WEIGHT: "0.25",
      NODE_UNIT_MEMORY_WEIGHT: "3",
      NODE_UNIT_SELF_STOP_MS: "900",
      NODE_UNIT_STOP_GRACE_MS: "0",
      NODE_UNIT_START_CONCURRENCY_MAX: "8",
      NODE_UNIT_PACKAGES_MAX_MB: "512",
      NODE_UNIT_WORK_KEEP_DAYS: "0",
      TRUSTED_PACKAGE_REGEXP: "@acme/.+@.+",
      ENABLE_CUSTOM_COMMAND: "true",
    };
    expect(readAgentConfig({ env })).toEqual({
      host_urls: ["ws://a:1", "wss://b:2/base"],
      host_token: SECRET,
      name: "rack 4",
      password: "pw",
      data_dir: "/var/lib/unit",
      labels: { zone: "eu-1", disk: "ssd=fast", empty: "" },
      claim_policy: "resource_usage",
      scheduler_interval_ms: 250,
      cpu_weight: 0.25,
      memory_weight: 3,
      self_stop_ms: 900,
      stop_grace_ms: 0,
      start_concurrency_max: 8,
      packages_max_mb: 512,
      work_keep_days: 0,
      trusted_package_regexp: "@acme/.+@.+",
      custom_command: true,
    });
  });

  test("an empty variable counts as not set", () => {
    const env = { ...HOST, HOST_TOKEN: "", NODE_UNIT_SELF_STOP_MS: "", TRUSTED_PACKAGE_REGEXP: "" };
    expect(readAgentConfig({ env })).toEqual(readAgentConfig({ env: HOST }));
    expect(problems({ HOST_URL: "" })).toEqual([expect.stringMatching(/^HOST_URL must be set/)]);
  });

  test("only the word true allows custom commands", () => {
    const allowed = (word: string) =>
      readAgentConfig({ env: { ...HOST, ENABLE_CUSTOM_COMMAND: word } }).custom_command;
    expect(allowed("true")).toBe(true);
    expect(allowed("false")).toBe(false);
    for (const word of ["TRUE", "1", "yes"])
      expect(problems({ ...HOST, ENABLE_CUSTOM_COMMAND: word })).toEqual([
        "ENABLE_CUSTOM_COMMAND must be true or false",
      ]);
  });
});

test("certificates are files that can be read, and a pair is complete", () => {
  const file = import.meta.filename;
  const env = { ...HOST, HOST_CA_FILE: file, HOST_CERT_FILE: file, HOST_KEY_FILE: file };
  expect(readAgentConfig({ env })).toMatchObject({
    host_ca_file: file,
    host_cert_file: file,
    host_key_file: file,
  });
  expect(() => readAgentConfig({ env: { ...HOST, HOST_CA_FILE: "/nowhere" } })).toThrow(
    "HOST_CA_FILE names a file that cannot be read",
  );
  expect(() => readAgentConfig({ env: { ...HOST, HOST_CERT_FILE: file } })).toThrow(
    "HOST_CERT_FILE and HOST_KEY_FILE must be set together",
  );
});

describe("the claim policy", () => {
  test.each(["none", "NONE", "None"])("%s is none", (word) => {
    const env = { ...HOST, NODE_UNIT_CLAIM_POLICY: word };
    expect(readAgentConfig({ env }).claim_policy).toBe("none");
  });

  test("an unknown name is refused with a suggestion", () => {
    expect(problems({ ...HOST, NODE_UNIT_CLAIM_POLICY: "Deployment_Cuont" })).toEqual([
      "NODE_UNIT_CLAIM_POLICY must be one of deployment_count, resource_usage, none; did you mean deployment_count?",
    ]);
    expect(problems({ ...HOST, NODE_UNIT_CLAIM_POLICY: "greedy" })).toEqual([
      "NODE_UNIT_CLAIM_POLICY must be one of deployment_count, resource_usage, none",
    ]);
  });

  test("a registered policy is known, and keeps its spelling", () => {
    const env = { ...HOST, NODE_UNIT_CLAIM_POLICY: "fewestgpus" };
    const policies = ["deployment_count", "fewestGpus"];
    expect(readAgentConfig({ env, policies }).claim_policy).toBe("fewestGpus");
  });
});

describe("one message names every problem", () => {
  test("a missing URL, a typo, a wrong type, a bad pattern and two bad relations", () => {
    const env = {
      NODE_UNIT_SELF_STOP: "1",
      NODE_UNIT_STOP_GRACE_MS: "10s",
      TRUSTED_PACKAGE_REGEXP: "(",
      NODE_UNIT_PASSWORD: SECRET,
      NODE_UNIT_CPU_WEIGHT: "0",
      NODE_UNIT_MEMORY_WEIGHT: "0.0",
    };
    expect(problems(env)).toEqual([
      "NODE_UNIT_SELF_STOP is not a setting; did you mean NODE_UNIT_SELF_STOP_MS?",
      "HOST_URL must be set: the server's URL, or several with commas between",
      "NODE_UNIT_STOP_GRACE_MS must be a whole number from 0 to 2147483647",
      "TRUSTED_PACKAGE_REGEXP must be a regular expression in RE2 syntax, which has no lookahead, lookbehind or backreference",
      "NODE_UNIT_PASSWORD requires NODE_UNIT_NAME: the key is derived from both",
      "NODE_UNIT_CPU_WEIGHT and NODE_UNIT_MEMORY_WEIGHT must not both be 0",
    ]);
    expect(refusal(env).message).toMatch(/^The node-unit's environment has 6 problems:\n {2}- /);
    expect(refusal(env).message).not.toContain(SECRET);
  });

  test.each<[string, Environment]>([
    ["HOST_URL must be URLs", { HOST_URL: "127.0.0.1:7070" }],
    ["HOST_URL must be URLs", { HOST_URL: "http://a,,http://b" }],
    ["HOST_URL must be URLs", { HOST_URL: `ftp://u:${SECRET}@h` }],
    ["NODE_UNIT_LABELS must be", { ...HOST, NODE_UNIT_LABELS: "zone" }],
    ["NODE_UNIT_LABELS must be", { ...HOST, NODE_UNIT_LABELS: "zone=a,zone=b" }],
    ["NODE_UNIT_LABELS must be", { ...HOST, NODE_UNIT_LABELS: "bad name=a" }],
    [
      "NODE_UNIT_LABELS must be fewer",
      {
        ...HOST,
        NODE_UNIT_LABELS: Array.from({ length: 62 }, (_, n) => `label${n}=x`).join(","),
      },
    ],
    ["NODE_UNIT_LABELS must not have", { ...HOST, NODE_UNIT_LABELS: "token/zone=a" }],
    ["NODE_UNIT_CPU_WEIGHT must be", { ...HOST, NODE_UNIT_CPU_WEIGHT: "-1" }],
    ["NODE_UNIT_MEMORY_WEIGHT must be", { ...HOST, NODE_UNIT_MEMORY_WEIGHT: "NaN" }],
    ["NODE_UNIT_SCHEDULER_INTERVAL_MS must be", { ...HOST, NODE_UNIT_SCHEDULER_INTERVAL_MS: "0" }],
    ["NODE_UNIT_START_CONCURRENCY_MAX must be", { ...HOST, NODE_UNIT_START_CONCURRENCY_MAX: "0" }],
    ["TRUSTED_PACKAGE_REGEXP must be", { ...HOST, TRUSTED_PACKAGE_REGEXP: "a)|(b" }],
    ["TRUSTED_PACKAGE_REGEXP must be", { ...HOST, TRUSTED_PACKAGE_REGEXP: "(?!evil).*" }],
    ["TRUSTED_PACKAGE_REGEXP must be", { ...HOST, TRUSTED_PACKAGE_REGEXP: "(?<=@)acme@.*" }],
    ["TRUSTED_PACKAGE_REGEXP must be", { ...HOST, TRUSTED_PACKAGE_REGEXP: "(a)@\\1" }],
    [
      "TRUSTED_PACKAGE_REGEXP must have fewer",
      { ...HOST, TRUSTED_PACKAGE_REGEXP: "(?:a{0,9}){0,99}" },
    ],
    [
      "TRUSTED_PACKAGE_REGEXP must have at most",
      { ...HOST, TRUSTED_PACKAGE_REGEXP: "a".repeat(1_025) },
    ],
    ["NODE_UNIT_ZZZZZZZZZ is not a setting", { ...HOST, NODE_UNIT_ZZZZZZZZZ: "1" }],
  ])("%s (%j)", (beginning, env) => {
    const message = refusal(env).message;
    expect(message).toContain(`The node-unit's environment has a problem: ${beginning}`);
    expect(message).not.toContain(SECRET);
  });
});

test("docs/config.md has exactly the variables of the node-unit, with default and description", () => {
  const page = readFileSync(new URL("../../../docs/config.md", import.meta.url), "utf8");
  const [, section = ""] = page.split("\n## Node-unit environment\n");
  const rows = section.split("\n").filter((line) => line.startsWith("| `"));
  expect(rows).toEqual(AGENT_VARIABLES.map(expectedRow));
});

function expectedRow({ name, required, default: byDefault, summary }: AgentVariable): string {
  const unset = byDefault === undefined ? "unset" : `\`${byDefault}\``;
  return `| \`${name}\` | ${required ? "required" : unset} | ${summary} |`;
}

function refusal(env: Environment): ConfigError {
  try {
    readAgentConfig({ env });
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error("was accepted");
}

const problems = (env: Environment): readonly string[] => refusal(env).problems;
