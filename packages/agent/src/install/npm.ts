import { existsSync, realpathSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";

/** How npm is started: without a shell, with the Node that runs the agent. */
export interface NpmCommand {
  file: string;
  args: readonly string[];
}

/** npm as it came with this Node, else the one in PATH. */
export function findNpm(env: NodeJS.ProcessEnv): NpmCommand {
  const beside = dirname(process.execPath);
  const inPath = (env.PATH ?? "").split(delimiter).filter((directory) => directory !== "");
  const candidates = [
    join(beside, "../lib/node_modules/npm/bin/npm-cli.js"),
    join(beside, "node_modules/npm/bin/npm-cli.js"),
    ...[beside, ...inPath].map((directory) => join(directory, "npm")),
  ];
  const found = candidates.find((path) => existsSync(path));
  if (!found) throw new Error(`npm was found neither beside ${process.execPath} nor in PATH`);
  const path = realpathSync(found);
  return /\.[cm]?js$/.test(path)
    ? { file: process.execPath, args: [path] }
    : { file: path, args: [] };
}

/**
 * Installs what `package.json` in the current directory names. No code of any package runs here: `--ignore-scripts`.
 * What the user's npm configuration says of registries, proxies and certificates applies; what it says of where and
 * how to install does not.
 */
const NPM_INSTALL_ANY: readonly string[] = [
  "install",
  "--ignore-scripts",
  "--omit=dev",
  "--no-audit",
  "--no-fund",
  "--no-global",
  "--no-progress",
  "--no-update-notifier",
  "--install-strategy=hoisted",
  "--workspaces=false",
  "--logs-max=0",
  "--loglevel=warn",
];

/** Installs by ranges: the newest versions that fit. */
export const NPM_INSTALL: readonly string[] = [...NPM_INSTALL_ANY, "--no-package-lock"];

/** Installs the dependencies of the package in the current directory as its own lockfile names them. */
export const NPM_INSTALL_LOCKED: readonly string[] = [
  ...NPM_INSTALL_ANY,
  "--package-lock",
  "--no-save",
];
