import { existsSync, realpathSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";

/** The command that starts npm without a shell, with the Node that runs the agent. */
export interface NpmCommand {
  file: string;
  args: readonly string[];
}

/** Finds the npm of this Node, or else the one in PATH. */
export function findNpm(env: NodeJS.ProcessEnv): NpmCommand {
  const beside = dirname(process.execPath);
  const inPath = (env.PATH ?? "").split(delimiter).filter((directory) => directory !== "");
  const candidates = [
    join(beside, "../lib/node_modules/npm/bin/npm-cli.js"),
    join(beside, "node_modules/npm/bin/npm-cli.js"),
    ...[beside, ...inPath].map((directory) => join(directory, "npm")),
  ];
  const found = candidates.find((path) => existsSync(path));
  if (!found) throw new Error(`could not find npm beside ${process.execPath} or in PATH`);
  const path = realpathSync(found);
  return /\.[cm]?js$/.test(path)
    ? { file: process.execPath, args: [path] }
    : { file: path, args: [] };
}

/**
 * Installs the dependencies of `package.json` in the current directory. No code of a package runs (`--ignore-scripts`). The
 * registries, proxies and certificates of the user's npm configuration apply; its options for where and how to install do
 * not.
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

/** Installs the newest versions that the ranges allow. */
export const NPM_INSTALL: readonly string[] = [...NPM_INSTALL_ANY, "--no-package-lock"];

/** Installs the dependencies of the package in the current directory by its own lockfile. */
export const NPM_INSTALL_LOCKED: readonly string[] = [
  ...NPM_INSTALL_ANY,
  "--package-lock",
  "--no-save",
];
