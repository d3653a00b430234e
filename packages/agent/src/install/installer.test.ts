import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type FakeRegistry, startFakeRegistry } from "@tenure/testing/programs/fake-registry";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { PATIENT } from "../../testing/executor-fixture.ts";
import { tryLock } from "../executor/data-directory/locks.ts";
import { createRunNpm } from "../executor/npm-run.ts";
import { startGuard } from "../executor/orphans/guard.ts";
import { findEntryPoint } from "./entry-point.ts";
import { createInstaller } from "./installer.ts";
import { writeListing } from "./listing.ts";
import { findNpm, type NpmCommand } from "./npm.ts";
import { problemOf } from "./package-spec.ts";

// npm takes seconds on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

const never = new AbortController().signal;
const cache = scratchDirectory("npm-cache");
let registry: FakeRegistry;
beforeAll(async () => {
  registry = await startFakeRegistry();
  return () => registry.close();
});

/** An installer with the real npm, which knows no registry but ours. */
function anInstaller({ find = findNpm, env: more = {} } = {}) {
  const directory = scratchDirectory("packages");
  const lock = tryLock(join(scratchDirectory("run"), "lock"));
  if (!lock) throw new Error("the directory is new");
  const guard = startGuard({
    workDirectory: "/nowhere",
    cgroups: undefined,
    lockFd: lock.fd,
    log: () => {},
  });
  onTestFinished(() => guard.close());
  const env = {
    PATH: process.env.PATH,
    HOME: cache,
    NPM_CONFIG_REGISTRY: registry.url,
    npm_config_cache: cache,
    npm_config_fetch_retries: "0",
    ...more,
  };
  const runs: string[] = [];
  const runNpm = createRunNpm(guard, { env }, find);
  const start = () =>
    createInstaller({
      directory,
      runNpm(path, signal, options) {
        runs.push(path);
        return runNpm(path, signal, options);
      },
    });
  return { installer: start(), directory, runs, restart: start };
}

function anInstallerWithoutNpm() {
  const directory = scratchDirectory("packages");
  const runs: string[] = [];
  const installer = createInstaller({
    directory,
    async runNpm(path) {
      runs.push(path);
      return { problem: "was not meant to run", output: "" };
    },
  });
  return { installer, directory, runs };
}

const elsewhere = scratchDirectory("elsewhere");
/** Settings of an npm that started the agent, or of its user, that must not apply here. */
const OTHER_WORK = {
  npm_config_workspace: "packages/x",
  npm_config_global: "true",
  npm_config_prefix: elsewhere,
  npm_config_local_prefix: elsewhere,
  NPM_CONFIG_DRY_RUN: "true",
  npm_config_ignore_scripts: "false",
  NODE_OPTIONS: "--no-such-option",
};

/** What npm 11 did on a full tmpfs: this warning for every file, one more line, and success. */
function onFullDisk(): NpmCommand {
  const program = `
    const { mkdirSync, writeFileSync } = require("node:fs");
    mkdirSync("node_modules/large", { recursive: true });
    writeFileSync("node_modules/large/package.json", '{ "name": "large", "version": "1.0.0" }');
    console.error("npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write");
    console.log("added 1 package in 2s");`;
  return { file: process.execPath, args: ["-e", program, "--"] };
}

describe("a package that ships a lockfile", () => {
  const versionIn = (directory: string): string =>
    JSON.parse(readFileSync(join(directory, "helper/package.json"), "utf8")).version;

  /** `helper` was 1.0.0 when the package was made, and 1.9.9 was published yesterday. */
  function publish(name: string, lockfile?: string): void {
    for (const version of ["1.0.0", "1.9.9"])
      registry.publish({
        name: "helper",
        version,
        files: { "index.js": `module.exports = "${version}";`, "cli.js": "#!/usr/bin/env node\n" },
        manifest: { bin: { helper: "cli.js" } },
      });
    const dependencies = { helper: "^1.0.0" };
    const resolved = `${registry.url}/helper/-/helper-1.0.0.tgz`;
    const packages = {
      "": { name, version: "1.0.0", dependencies },
      "node_modules/helper": { version: "1.0.0", resolved, bin: { helper: "cli.js" } },
    };
    const lock = JSON.stringify({ name, version: "1.0.0", lockfileVersion: 3, packages });
    const files = { "index.js": "", ...(lockfile && { [lockfile]: lock }) };
    registry.publish({ name, version: "1.0.0", files, manifest: { dependencies } });
  }

  test.each([
    ["npm-shrinkwrap.json", "locked"],
    ["package-lock.json", "@scope/locked"],
  ])("gets the dependencies that its %s names, and no newer ones beside it", async (file, name) => {
    publish(name, file);
    const { installer, directory } = anInstaller();
    const installed = await installer.install({ name, version: "1.0.0" }, never);
    expect(versionIn(join(installed.directory, "node_modules"))).toBe("1.0.0");
    const beside = readdirSync(join(directory, `${name}@1.0.0/node_modules`));
    expect(beside.filter((entry) => entry !== ".bin")).toEqual([name.split("/")[0]]);
    const commands = installed.binDirectories.flatMap((bin) =>
      existsSync(bin) ? readdirSync(bin) : [],
    );
    expect(commands).toEqual(["helper"]);
  });

  test("without a lockfile gets the newest versions of its ranges", async () => {
    publish("floating");
    const { installer } = anInstaller();
    const installed = await installer.install({ name: "floating", version: "1.0.0" }, never);
    expect(versionIn(join(installed.directory, ".."))).toBe("1.9.9");
  });
});

describe("names and versions that never reach npm", () => {
  const { installer, runs } = anInstallerWithoutNpm();

  test.each([
    ["../thing", "1.0.0"],
    ["..", "1.0.0"],
    [".hidden", "1.0.0"],
    ["@scope/../thing", "1.0.0"],
    ["@scope", "1.0.0"],
    ["a/b", "1.0.0"],
    ["--global", "1.0.0"],
    ["thing@npm:other", "1.0.0"],
    ["thing\n", "1.0.0"],
    ["", "1.0.0"],
    ["x".repeat(215), "1.0.0"],
    ["thing", "npm:other@1.0.0"],
    ["thing", "git+https://example.com/thing.git"],
    ["thing", "github:user/thing"],
    ["thing", "file:../thing"],
    ["thing", "https://example.com/thing.tgz"],
    ["thing", "latest"],
    ["thing", "^1.0.0"],
    ["thing", "1.x"],
    ["thing", "1.0"],
    ["thing", "v1.0.0"],
    ["thing", "=1.0.0"],
    ["thing", "01.0.0"],
    ["thing", "1.0.0-.."],
    ["thing", "1.0.0 || 2.0.0"],
    ["thing", "1.0.0\n"],
    ["thing", ""],
  ])("%j at %j", async (name, version) => {
    expect(problemOf({ name, version })).toMatch(/is not (the name|an exact version)/);
    expect(installer.isInstalled({ name, version })).toBe(false);
    await expect(installer.install({ name, version }, never)).rejects.toThrow(/is not /);
    expect(runs).toEqual([]);
  });

  test.each([
    ["thing", "0.0.0"],
    ["JSONStream", "1.2.3-beta.1+build.5"],
    ["@scope/a.b-c_d~e", "10.20.30"],
  ])("%j at %j may", (name, version) => {
    expect(problemOf({ name, version })).toBeUndefined();
  });
});

describe("installing", () => {
  test("a package is installed with its dependencies from the user's registry, without running code", async () => {
    const marker = join(scratchDirectory("marker"), "ran");
    const scripts = { preinstall: `touch ${marker}`, postinstall: `touch ${marker}` };
    registry.publish({ name: "dependency", version: "2.0.0", files: { "index.js": "" } });
    registry.publish({
      name: "@scope/thing",
      version: "1.0.0",
      files: { "cli.js": "", "main.js": "" },
      manifest: {
        bin: "cli.js",
        scripts,
        dependencies: { dependency: "2.0.0" },
        devDependencies: { "does-not-exist": "1.0.0" },
      },
    });
    const { installer, directory } = anInstaller({ env: OTHER_WORK });
    const spec = { name: "@scope/thing", version: "1.0.0" };
    expect(installer.isInstalled(spec)).toBe(false);
    const installed = await installer.install(spec, never);
    expect(installed.directory).toBe(
      join(directory, "@scope/thing@1.0.0/node_modules/@scope/thing"),
    );
    expect(existsSync(join(installed.directory, "../../dependency/package.json"))).toBe(true);
    expect(existsSync(marker)).toBe(false);
    expect(readdirSync(elsewhere)).toEqual([]);
    expect(installer.isInstalled(spec)).toBe(true);
    expect(await findEntryPoint(installed.directory)).toEqual({
      path: join(installed.directory, "cli.js"),
      isNode: true,
    });
  });

  test("two callers for the same package share one npm", async () => {
    registry.publish({ name: "shared", version: "1.0.0", files: { "index.js": "" } });
    const { installer, runs } = anInstaller();
    const spec = { name: "shared", version: "1.0.0" };
    const [one, other] = await Promise.all([
      installer.install(spec, never),
      installer.install(spec, never),
    ]);
    expect(one).toEqual(other);
    expect(runs).toHaveLength(1);
    await installer.install(spec, never);
    expect(runs).toHaveLength(1);
  });

  test("a package that a power cut left with an empty file, or without its listing, is installed again", async () => {
    registry.publish({ name: "cut", version: "1.0.0", files: { "index.js": "run();" } });
    const { installer, directory, runs, restart } = anInstaller();
    const spec = { name: "cut", version: "1.0.0" };
    const program = join((await installer.install(spec, never)).directory, "index.js");
    await restart().install(spec, never);
    expect(runs).toHaveLength(1);
    writeFileSync(program, "");
    await restart().install(spec, never);
    expect(readFileSync(program, "utf8")).toBe("run();");
    rmSync(join(directory, "cut@1.0.0", ".tenure-installed.json"));
    expect(installer.isInstalled(spec)).toBe(false);
    await restart().install(spec, never);
    expect(runs).toHaveLength(3);
    expect(installer.isInstalled(spec)).toBe(true);
    expect(readdirSync(directory)).toEqual(["cut@1.0.0"]);
  });

  test("a package that does not exist fails with npm's output, and leaves no files", async () => {
    const { installer, directory } = anInstaller();
    await expect(installer.install({ name: "nobody", version: "1.0.0" }, never)).rejects.toThrow(
      /npm install failed with exit code 1: (.|\n)*404/,
    );
    expect(readdirSync(directory)).toEqual([]);
  });

  test("an interrupted installation leaves no files, and the next one is complete", async () => {
    const half = { name: "half", version: "1.0.0", files: { "index.js": "x".repeat(100_000) } };
    registry.publish({ ...half, tarball: "broken" });
    const { installer, directory } = anInstaller();
    const spec = { name: "half", version: "1.0.0" };
    await expect(installer.install(spec, never)).rejects.toThrow(/npm install failed/);
    expect(installer.isInstalled(spec)).toBe(false);
    expect(readdirSync(directory)).toEqual([]);
    registry.publish(half);
    await installer.install(spec, never);
    expect(installer.isInstalled(spec)).toBe(true);
  });

  test("a full disk fails the installation, although npm exits with 0", async () => {
    const { installer, directory } = anInstaller({ find: onFullDisk });
    const spec = { name: "large", version: "1.0.0" };
    await expect(installer.install(spec, never)).rejects.toThrow(
      "npm install could not unpack every file: npm warn tar TAR_ENTRY_ERROR ENOSPC: no space",
    );
    expect(readdirSync(directory)).toEqual([]);
  });

  test("an installation is cancelled when its last caller has left, and not before", async () => {
    const slow = { name: "slow", version: "1.0.0", files: { "index.js": "" } };
    registry.publish({ ...slow, tarball: "hanging" });
    const { installer, directory, runs } = anInstaller();
    const spec = { name: "slow", version: "1.0.0" };
    const users = [new AbortController(), new AbortController()] as const;
    const results = users.map(({ signal }) =>
      installer.install(spec, signal).then(
        () => "installed",
        (error: Error) => error.message,
      ),
    );
    await until(() => registry.requests.some((path) => path.startsWith("slow/-/")), {
      ...PATIENT,
      what: "npm to ask for the tarball",
    });
    users[0].abort(new Error("changed my mind"));
    expect(await results[0]).toBe("changed my mind");
    expect(readdirSync(directory)).toHaveLength(1);
    users[1].abort(new Error("me too"));
    expect(await results[1]).toBe("me too");
    // A later caller starts a new installation instead of joining the cancelled one.
    registry.publish(slow);
    await installer.install(spec, never);
    expect(runs).toHaveLength(2);
    await until(() => readdirSync(directory).length === 1, {
      ...PATIENT,
      what: "the first attempt to be cleared away",
    });
    expect(readdirSync(directory)).toEqual(["slow@1.0.0"]);
  });
});

describe("removing", () => {
  test("above the size limit the least recently used packages are removed, and used ones stay", async () => {
    const directory = scratchDirectory("packages");
    const runNpm = () => Promise.reject(new Error("was not meant to run"));
    const installer = createInstaller({ directory, runNpm, bytesMax: 250 });
    for (const [name, hours] of [
      ["wanted@1.0.0", 9],
      ["older@1.0.0", 5],
      ["newer@1.0.0", 1],
    ] as const) {
      const path = join(directory, name);
      const at = new Date(Date.now() - hours * 60 * 60_000);
      mkdirSync(path);
      writeFileSync(join(path, "index.js"), "x".repeat(100));
      await writeListing(path);
      utimesSync(path, at, at);
    }
    await installer.removeUnused((name) => name === "wanted@1.0.0");
    expect(readdirSync(directory).sort()).toEqual(["newer@1.0.0", "wanted@1.0.0"]);
  });

  test("packages used within a week stay, also across restarts; others are removed", async () => {
    const { installer, directory } = anInstallerWithoutNpm();
    const names = ["used@1.0.0", "@scope/old@1.0.0", "recent@1.0.0", ".unfinished-abc"];
    const long = new Date(Date.now() - 8 * 24 * 60 * 60_000);
    for (const name of names) {
      mkdirSync(join(directory, name, "node_modules"), { recursive: true });
      writeFileSync(join(directory, name, "package.json"), "{}");
      if (name !== "recent@1.0.0") utimesSync(join(directory, name), long, long);
    }
    await installer.removeUnused((name) => name === "used@1.0.0");
    expect(readdirSync(directory).sort()).toEqual(
      [".unfinished-abc", "@scope", "recent@1.0.0", "used@1.0.0"].sort(),
    );
    expect(readdirSync(join(directory, "@scope"))).toEqual([]);
    await installer.removeUnused(() => false);
    expect(readdirSync(directory)).toContain("used@1.0.0");
    await installer.removeUnfinished();
    expect(readdirSync(directory)).not.toContain(".unfinished-abc");
  });
});
