import { existsSync } from "node:fs";
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { readManifest } from "./entry-point.ts";
import { damageOf, installedSize, LISTING, sync, writeListing } from "./listing.ts";
import { removeNeighbours, shipsLockfile } from "./lockfile.ts";
import { directoryName, isSameVersion, type PackageSpec, problemOf } from "./package-spec.ts";
import { makeReadable } from "./readable.ts";
import { createSharedWork } from "./shared-work.ts";

/** An installed package. */
export interface Installed {
  /** The package itself, with its `package.json`. */
  directory: string;
  /** Commands of the package and of what it depends on. */
  binDirectories: readonly string[];
}

export interface Installer {
  isInstalled(spec: PackageSpec): boolean;
  /**
   * Installs a package unless it is installed and undamaged. Callers for the same package share one installation, which is
   * cancelled when the last of them has left. Rejects with npm's output.
   */
  install(spec: PackageSpec, signal: AbortSignal): Promise<Installed>;
  /** Removes the remains of killed installations. To be called at the start, before any installation. */
  removeUnfinished(): Promise<void>;
  /** Removes packages that were not used for a week, and sooner while their total is above the limit. */
  removeUnused(isUsed: (directoryName: string) => boolean): Promise<void>;
}

/** Runs npm in a directory until its end, and returns the problem, if any, and the end of its output. */
export type RunNpm = (
  directory: string,
  signal: AbortSignal,
  /** Locked: the directory is a package with a lockfile of its own. */
  options?: { isLocked?: boolean },
) => Promise<{ problem: string | undefined; output: string }>;

export interface InstallerOptions {
  directory: string;
  runNpm: RunNpm;
  /** Whether other users than the agent's run the packages: they may read them, and only the agent's user may write. */
  isShared?: boolean;
  /** Called before a damaged package is installed again. */
  onDamaged?: (name: string, damage: string) => void;
  /** Above it unused packages are removed at once, the least recently used first. */
  bytesMax?: number;
  unusedAfterMs?: number;
}

const UNUSED_AFTER_MS = 7 * 24 * 60 * 60_000;
const UNFINISHED = ".unfinished-";

export function createInstaller({
  directory,
  runNpm,
  isShared = false,
  onDamaged = () => {},
  bytesMax = Number.POSITIVE_INFINITY,
  unusedAfterMs = UNUSED_AFTER_MS,
}: InstallerOptions): Installer {
  const pathOf = (spec: PackageSpec): string => join(directory, directoryName(spec));
  const isInstalled = (spec: PackageSpec): boolean =>
    problemOf(spec) === undefined && existsSync(join(pathOf(spec), LISTING));
  /** Packages that this process has checked or installed. */
  const verified = new Set<string>();
  const installs = createSharedWork();

  /** Checks once per process: damage of a power cut is found when the agent starts after it. */
  async function provide(spec: PackageSpec, signal: AbortSignal): Promise<void> {
    if (existsSync(pathOf(spec))) {
      const damage = await damageOf(pathOf(spec));
      if (damage !== undefined) {
        onDamaged(directoryName(spec), damage);
        await removePackage(pathOf(spec));
      }
    }
    signal.throwIfAborted();
    if (!existsSync(pathOf(spec))) await installNew(spec, signal);
    if (isShared) await openToChildren(pathOf(spec));
    verified.add(directoryName(spec));
  }

  async function openToChildren(path: string): Promise<void> {
    if (dirname(path) !== directory) await chmod(dirname(path), 0o711); // The directory of the scope.
    await makeReadable(path);
  }

  /** Renames the package before the removal, so that half a package is never found by its name. */
  async function removePackage(path: string): Promise<void> {
    const away = await mkdtemp(join(directory, UNFINISHED));
    await rename(path, away);
    await rm(away, FORCE);
  }

  async function install(path: string, signal: AbortSignal, isLocked = false): Promise<void> {
    const { problem, output } = await runNpm(path, signal, { isLocked });
    signal.throwIfAborted();
    if (problem !== undefined) throw new Error(`npm install ${problem}${output && `: ${output}`}`);
  }

  /**
   * Installs a package's dependencies by its own lockfile. npm itself uses a dependency's npm-shrinkwrap.json only if the
   * registry announces it (`_hasShrinkwrap`), and a package-lock.json never (npm 11, measured).
   */
  async function installByLockfile(
    spec: PackageSpec,
    path: string,
    signal: AbortSignal,
  ): Promise<void> {
    const own = packageIn(path, spec);
    if (!shipsLockfile(own)) return;
    await install(own, signal, true);
    await removeNeighbours(join(path, "node_modules"), spec.name);
  }

  /** Installs into a temporary directory and renames it: the path either does not exist or is a whole package. */
  async function installNew(spec: PackageSpec, signal: AbortSignal): Promise<void> {
    const temporary = await mkdtemp(join(directory, UNFINISHED));
    try {
      const manifest = { private: true, dependencies: { [spec.name]: spec.version } };
      await writeFile(join(temporary, "package.json"), JSON.stringify(manifest));
      await install(temporary, signal);
      await verify(spec, temporary);
      await installByLockfile(spec, temporary, signal);
      await writeListing(temporary);
      await mkdir(dirname(pathOf(spec)), { recursive: true, mode: 0o700 });
      await rename(temporary, pathOf(spec));
      await sync(dirname(pathOf(spec)));
    } finally {
      await rm(temporary, FORCE);
    }
  }

  return {
    isInstalled,
    async install(spec, signal) {
      const problem = problemOf(spec);
      if (problem !== undefined) throw new Error(problem);
      while (!(verified.has(directoryName(spec)) && isInstalled(spec)))
        await installs.join(directoryName(spec), (aborted) => provide(spec, aborted), signal);
      await touch(pathOf(spec));
      return {
        directory: packageIn(pathOf(spec), spec),
        binDirectories: [pathOf(spec), packageIn(pathOf(spec), spec)].map((path) =>
          join(path, "node_modules", ".bin"),
        ),
      };
    },
    async removeUnfinished() {
      const names = (await readdir(directory)).filter((name) => name.startsWith(UNFINISHED));
      for (const name of names) await rm(join(directory, name), FORCE);
    },
    async removeUnused(isUsed) {
      const unused: { name: string; size: number; usedMs: number }[] = [];
      let total = 0;
      for (const name of await listPackages(directory)) {
        const path = join(directory, name);
        const size = await installedSize(path);
        total += size;
        if (isUsed(name) || installs.has(name)) await touch(path);
        else unused.push({ name, size, usedMs: (await stat(path)).mtimeMs });
      }
      for (const { name, size, usedMs } of unused.sort((a, b) => a.usedMs - b.usedMs)) {
        if (Date.now() - usedMs <= unusedAfterMs && total <= bytesMax) break;
        verified.delete(name);
        await removePackage(join(directory, name));
        total -= size;
      }
    },
  };
}

const FORCE = { recursive: true, force: true, maxRetries: 3 } as const;

/** The mtime of the directory is the time of the last use. */
async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {}); // A read-only disk still has the package.
}

const packageIn = (path: string, { name }: PackageSpec): string => join(path, "node_modules", name);

/** Throws if the registry answered with another package or version. */
async function verify(spec: PackageSpec, path: string): Promise<void> {
  const { name, version } = await readManifest(packageIn(path, spec));
  if (name !== spec.name || !isSameVersion(spec.version, version))
    throw new Error(`registry answered with ${name}@${version} for ${directoryName(spec)}`);
}

/** Returns the names of all packages, with their scopes. */
async function listPackages(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  const visible = names.filter((name) => !name.startsWith("."));
  const nested = visible.map(async (name) => {
    if (!name.startsWith("@")) return [name];
    return (await readdir(join(directory, name))).map((inner) => `${name}/${inner}`);
  });
  return (await Promise.all(nested)).flat();
}
