// Holds the import rules, and holds the checker to its word: it fails when it read fewer files than there
// are (a parser that does not know TypeScript reads none and reports success), and it shows that every
// rule catches a violation planted for it.
import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { transformFileSync } from "@swc/core";

const require = createRequire(import.meta.url);
const root = resolve(import.meta.dirname, "..");
const CONFIG = ".dependency-cruiser.cjs";

/** @param {string} directory */
function cruise(directory) {
  const bin = join(root, "node_modules/dependency-cruiser/bin/dependency-cruise.mjs");
  const args = [bin, "--config", CONFIG, "--output-type", "json", "packages"];
  const run = spawnSync(process.execPath, args, {
    cwd: directory,
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
  if (!run.stdout) throw new Error(`dependency-cruiser failed: ${run.stderr}`);
  /** @type {{ modules: { source: string }[], summary: { violations: { rule: { name: string }, from: string, to: string }[] } }} */
  const report = JSON.parse(run.stdout);
  return report;
}

/** @param {string} directory */
function sources(directory) {
  const files = readdirSync(join(directory, "packages"), { recursive: true, encoding: "utf8" });
  return files
    .filter((file) => /^[^/]+\/src\/.*\.tsx?$/.test(file) && !file.endsWith(".d.ts"))
    .map((file) => join("packages", file));
}

/** @param {string} directory */
function check(directory) {
  const { modules, summary } = cruise(directory);
  const read = new Set(modules.map(({ source }) => source));
  const unread = sources(directory).filter((file) => !read.has(file));
  return { violations: summary.violations, unread, readCount: read.size };
}

// One file per rule, each with the import that the rule forbids.
/** @type {Record<string, { file: string, imports: string }>} */
const PLANTED = {
  "protocol-knows-only-zod": { file: "protocol/src/planted.ts", imports: "node:fs" },
  "only-the-pattern-knows-re2": { file: "protocol/src/planted-re2.ts", imports: "./pattern.ts" },
  "sdk-knows-only-protocol": { file: "sdk/src/planted.ts", imports: "../../server/src/index.ts" },
  "server-knows-only-protocol": {
    file: "server/src/planted.ts",
    imports: "../../sdk/src/index.ts",
  },
  "agent-and-console-know-only-the-sdk": {
    file: "agent/src/planted.ts",
    imports: "../../server/src/index.ts",
  },
  "console-and-agent-are-apart": {
    file: "console/src/planted.ts",
    imports: "../../agent/src/index.ts",
  },
  "cli-loads-server-and-agent-when-asked": {
    file: "cli/src/planted.ts",
    imports: "@tenure/server",
  },
  "edges-never-touch-a-store": {
    file: "server/src/http/routes/planted.ts",
    imports: "../../store/sql.ts",
  },
  "domains-are-apart": { file: "server/src/jobs/planted.ts", imports: "../nonces/target.ts" },
  "jobs-decide-and-remember-without-a-store": {
    file: "server/src/jobs/memory/planted.ts",
    imports: "../store/job-store.ts",
  },
  "jobs-api-runs-no-script": {
    file: "server/src/jobs/api/planted.ts",
    imports: "../store/transition-store.ts",
  },
  "jobs-store-knows-no-flow": {
    file: "server/src/jobs/store/planted.ts",
    imports: "../flow/step.ts",
  },
  "secrets-know-no-domain": {
    file: "server/src/secrets/planted.ts",
    imports: "../deployments/release.ts",
  },
  "domains-know-no-edge": { file: "server/src/nonces/planted.ts", imports: "../http/auth.ts" },
  "membership-and-delivery-know-no-domain": {
    file: "server/src/delivery/planted.ts",
    imports: "../nonces/target.ts",
  },
  "peers-know-only-actor-and-kernel": {
    file: "server/src/peers/planted.ts",
    imports: "../membership/instance.ts",
  },
  "stores-know-only-the-kernel": {
    file: "server/src/store/planted.ts",
    imports: "../membership/instance.ts",
  },
  "kernel-knows-nothing": { file: "server/src/kernel/planted.ts", imports: "../store/sql.ts" },
  "only-app-knows-every-part": { file: "server/src/http/planted-app.ts", imports: "../app.ts" },
  "tests-stay-in-tests": {
    file: "server/src/planted-test.ts",
    imports: "../testing/failpoints.js",
  },
  "only-tests-import-testing": {
    file: "cli/src/planted-testing.ts",
    imports: "@tenure/testing/until",
  },
  "no-cycles": { file: "server/src/nonces/planted-cycle.ts", imports: "./target.ts" },
  "no-unresolvable": { file: "sdk/src/planted-nowhere.ts", imports: "./nowhere.ts" },
};

/** The sources as they are; JSX, which the checker's parser does not know, becomes calls. @param {string} directory */
function copySources(directory) {
  const parts = ["packages", "tests", "examples"];
  const tracked = execFileSync("git", ["ls-files", "-co", "--exclude-standard", ...parts], {
    cwd: root,
    encoding: "utf8",
  });
  // A file that was removed and not committed yet is still on git's list.
  for (const file of tracked.split("\n").filter((name) => name && existsSync(join(root, name)))) {
    cpSync(join(root, file), join(directory, file));
    if (file.endsWith(".tsx")) writeFileSync(join(directory, file), withoutJsx(join(root, file)));
  }
  // `#failpoint` names what the build makes of it.
  for (const file of [CONFIG, "package.json", "packages/server/dist/kernel/failpoint.js"])
    cpSync(join(root, file), join(directory, file));
  linkModules(directory);
}

/** @param {string} path */
function withoutJsx(path) {
  const parser = /** @type {const} */ ({ syntax: "typescript", tsx: true });
  const react = /** @type {const} */ ({ runtime: "automatic", importSource: "preact" });
  const jsc = /** @type {const} */ ({
    parser,
    target: "es2022",
    transform: { react, verbatimModuleSyntax: true },
  });
  return transformFileSync(path, { swcrc: false, jsc }).code;
}

/** Plants every violation in the copy; each rule must catch its own. @param {string} directory */
function checkPlanted(directory) {
  for (const { file, imports } of Object.values(PLANTED))
    plant(join(directory, "packages", file), imports);
  plant(join(directory, "packages/server/src/nonces/target.ts"), "./planted-cycle.ts");
  const { violations } = check(directory);
  const rules = require(join(root, CONFIG)).forbidden.map(
    (/** @type {{ name: string }} */ rule) => rule.name,
  );
  return rules.filter((/** @type {string} */ name) => {
    const file = PLANTED[name]?.file;
    return (
      !file ||
      !violations.some(({ rule, from }) => rule.name === name && from === `packages/${file}`)
    );
  });
}

/** The packages of the copy, and everything else from the real tree. @param {string} directory */
function linkModules(directory) {
  const modules = join(root, "node_modules");
  mkdirSync(join(directory, "node_modules/@tenure"), { recursive: true });
  for (const name of readdirSync(modules)) {
    if (name !== "@tenure") symlinkSync(join(modules, name), join(directory, "node_modules", name));
  }
  for (const name of readdirSync(join(directory, "packages"))) {
    symlinkSync(join(directory, "packages", name), join(directory, "node_modules/@tenure", name));
  }
}

/** @param {string} path @param {string} imports */
function plant(path, imports) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(
    path,
    `import * as planted from ${JSON.stringify(imports)};\nconsole.log(planted);\n`,
  );
}

const directory = mkdtempSync(join(tmpdir(), "tenure-imports-"));
try {
  copySources(directory);
  const { violations, unread, readCount } = check(directory);
  for (const { rule, from, to } of violations) console.error(`${rule.name}: ${from} imports ${to}`);
  for (const file of unread) console.error(`not read: ${file}`);
  const missed = checkPlanted(directory);
  for (const name of missed) console.error(`the rule ${name} did not catch its planted violation`);
  const planted = Object.keys(PLANTED).length;
  console.log(
    `imports: ${readCount} modules read, ${violations.length} violations; ${planted - missed.length} of ${planted} planted violations caught`,
  );
  process.exitCode = violations.length + unread.length + missed.length > 0 ? 1 : 0;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
