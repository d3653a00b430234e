import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { OTHER_VARIABLES, TEST_VARIABLE_PREFIX } from "./config/keys.ts";
import { CONFIG_KEYS, type ConfigKey, readConfig } from "./config.ts";

const PAGE = readFileSync(new URL("../../../docs/config.md", import.meta.url), "utf8");

test("docs/config.md has exactly the settings of the schema, with variable, default and sentence", () => {
  expect(documentedRows(PAGE)).toEqual(CONFIG_KEYS.map(expectedRow));
});

test("every setting has a sentence that fits into a table", () => {
  for (const key of CONFIG_KEYS) expect(key.summary, key.path).toMatch(/^[^|\n]{20,}[.]$/);
});

test("no two settings share a variable", () => {
  const variables = CONFIG_KEYS.map((key) => key.env);
  expect(new Set(variables).size).toBe(variables.length);
});

test("variables follow from the section and the key", () => {
  expect(CONFIG_KEYS).toContainEqual(
    expect.objectContaining({ path: "server.port", env: "TENURE_SERVER_PORT", default: 7070 }),
  );
  expect(CONFIG_KEYS).toContainEqual(
    expect.objectContaining({
      path: "scheduler.phase2.redis.url",
      env: "TENURE_SCHEDULER_PHASE2_REDIS_URL",
      default: "",
    }),
  );
});

test("the message that docs/config.md shows is the one that such a configuration gets", () => {
  const file = { path: "tenure.toml", text: "server.prot = 1\nnonce.hold_ttl_ms = 5000" };
  const env = { TENURE_JOB_TIMEOUT_ATTEMPTS_MAX: "three" };
  expect(() => readConfig({ file, env })).toThrow(codeBlock(""));
});

test("the tokens that docs/config.md shows are accepted", () => {
  const file = { path: "tenure.toml", text: codeBlock("toml") };
  const roles = readConfig({ file, env: {} }).auth.tokens.map((token) => token.role);
  expect(roles).toEqual(["admin", "node", "signer"]);
});

test.each([...OTHER_VARIABLES, TEST_VARIABLE_PREFIX])("docs/config.md mentions %s", (name) => {
  expect(PAGE).toContain(`\`${name}\``);
});

/** The first fenced block of a language on the page. */
function codeBlock(language: string): string {
  const block = new RegExp(`^\`\`\`${language}\\n(.*?)\\n\`\`\`$`, "ms").exec(PAGE)?.[1];
  if (block === undefined) throw new Error(`docs/config.md has no ${language} block`);
  return block;
}

/** The table rows under each `### [section]`, with the section in front: `server | …`. */
function documentedRows(page: string): string[] {
  let section = "";
  return page.split("\n").flatMap((line) => {
    if (line.startsWith("#")) section = /^### `\[(.+)\]`$/.exec(line)?.[1] ?? "";
    return section !== "" && line.startsWith("| `") ? [`${section} ${line}`] : [];
  });
}

function expectedRow({ path, env, default: byDefault, summary }: ConfigKey): string {
  const [, section, key] = /^(.+)\.([^.]+)$/.exec(path) ?? [];
  const shown = byDefault === undefined ? "unset" : `\`${JSON.stringify(byDefault)}\``;
  return `${section} | \`${key}\` | \`${env}\` | ${shown} | ${summary} |`;
}
