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
   * Installs a package unless it is there already, and whole. A second caller for the same one meanwhile shares the work; it is given
   * up when nobody wants it any more. Rejects with what npm said.
   */
  install(spec: PackageSpec, signal: AbortSignal): Promise<Installed>;
  /** Removes what killed installs left behind. For the start, when none is under way. */
  removeUnfinished(): Promise<void>;
  /** Removes packages that were not wanted for a week, and sooner while all together are above the limit. */
  removeUnused(isWanted: (directoryName: string) => boolean): Promise<void>;
}

/** Runs npm in a directory until its end, and tells what went wrong, if anything, and the end of what npm said. */
export type RunNpm = (
  directory: string,
  signal: AbortSignal,
  /** Locked: the directory is a package, and its own lockfile counts. */
  options?: { isLocked?: boolean },
) => Promise<{ problem: string | undefined; output: string }>;

export interface InstallerOptions {
  directory: string;
  runNpm: RunNpm;
  /** Other users than the agent's run what is installed here: they may read it, and none but the agent's may write. */
  isShared?: boolean;
  /** A package that was installed is not whole any more, and is installed again. */
  onDamaged?: (name: string, damage: string) => void;
  /** Above it, packages that are not wanted go at once, those wanted longest ago first. */
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
  const underway = new Map<string, SharedInstall>();
  const pathOf = (spec: PackageSpec): string => join(directory, directoryName(spec));
  const isInstalled = (spec: PackageSpec): boolean =>
    problemOf(spec) === undefined && existsSync(join(pathOf(spec), LISTING));
  /** Checked, or installed, by this process. */
  const whole = new Set<string>();

  /** Looked at once per process: what a power cut damaged is found when the agent starts again after it. */
  async function provide(spec: PackageSpec, signal: AbortSignal): Promise<void> {
    if (existsSync(pathOf(spec))) {
      const damage = await damageOf(pathOf(spec));
      if (damage !== undefined) {
        onDamaged(directoryName(spec), damage);
        await removeWhole(pathOf(spec));
      }
    }
    signal.throwIfAborted();
    if (!existsSync(pathOf(spec))) await installAnew(spec, signal);
    if (isShared) await openToChildren(pathOf(spec));
    whole.add(directoryName(spec));
  }

  async function openToChildren(path: string): Promise<void> {
    if (dirname(path) !== directory) await chmod(dirname(path), 0o711); // of a scope
    await makeReadable(path);
  }

  /** Out of the way first: half a package must not be found by its name. */
  async function removeWhole(path: string): Promise<void> {
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
   * npm itself heeds a dependency's npm-shrinkwrap.json only where the registry tells of it (`_hasShrinkwrap`), and a
   * package-lock.json never (npm 11, measured).
   */
  async function obeyLockfile(spec: PackageSpec, path: string, signal: AbortSignal): Promise<void> {
    const own = packageIn(path, spec);
    if (!shipsLockfile(own)) return;
    await install(own, signal, true);
    await removeNeighbours(join(path, "node_modules"), spec.name);
  }

  /** Made beside and moved into place: the name does not exist, or is a whole package. */
  async function installAnew(spec: PackageSpec, signal: AbortSignal): Promise<void> {
    const beside = await mkdtemp(join(directory, UNFINISHED));
    try {
      const manifest = { private: true, dependencies: { [spec.name]: spec.version } };
      await writeFile(join(beside, "package.json"), JSON.stringify(manifest));
      await install(beside, signal);
      await verify(spec, beside);
      await obeyLockfile(spec, beside, signal);
      await writeListing(beside);
      await mkdir(dirname(pathOf(spec)), { recursive: true, mode: 0o700 });
      await rename(beside, pathOf(spec));
      await sync(dirname(pathOf(spec)));
    } finally {
      await rm(beside, FORCE);
    }
  }

  function share(spec: PackageSpec): SharedInstall {
    const key = directoryName(spec);
    const shared = underway.get(key) ?? begin(key, spec);
    shared.users++;
    return shared;
  }

  function begin(key: string, spec: PackageSpec): SharedInstall {
    const abandoned = new AbortController();
    const leave = (): void => {
      if (underway.get(key) === shared) underway.delete(key);
    };
    const done = provide(spec, abandoned.signal).finally(leave);
    done.catch(() => {}); // told to whoever waits; there may be nobody left
    const giveUp = (): void => {
      leave(); // whoever asks from now on begins anew instead of sharing the failure
      abandoned.abort(new Error("nobody wants it any more"));
    };
    const shared: SharedInstall = { users: 0, done, giveUp };
    underway.set(key, shared);
    return shared;
  }

  return {
    isInstalled,
    async install(spec, signal) {
      const problem = problemOf(spec);
      if (problem !== undefined) throw new Error(problem);
      while (!(whole.has(directoryName(spec)) && isInstalled(spec))) {
        signal.throwIfAborted();
        const shared = share(spec);
        try {
          await orAborted(shared.done, signal);
        } finally {
          shared.users--;
          if (shared.users === 0) shared.giveUp();
        }
      }
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
    async removeUnused(isWanted) {
      const unused: { name: string; size: number; wantedMs: number }[] = [];
      let total = 0;
      for (const name of await listPackages(directory)) {
        const path = join(directory, name);
        const size = await installedSize(path);
        total += size;
        if (isWanted(name) || underway.has(name)) await touch(path);
        else unused.push({ name, size, wantedMs: (await stat(path)).mtimeMs });
      }
      for (const { name, size, wantedMs } of unused.sort((a, b) => a.wantedMs - b.wantedMs)) {
        if (Date.now() - wantedMs <= unusedAfterMs && total <= bytesMax) break;
        whole.delete(name);
        await removeWhole(join(directory, name));
        total -= size;
      }
    },
  };
}

const FORCE = { recursive: true, force: true, maxRetries: 3 } as const;

/** The time of the directory says when the package was last wanted. */
async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {}); // a disk that cannot be written still holds the package
}

interface SharedInstall {
  users: number;
  done: Promise<void>;
  giveUp(): void;
}

const packageIn = (path: string, { name }: PackageSpec): string => join(path, "node_modules", name);

/** A registry may answer with something else than it was asked for. */
async function verify(spec: PackageSpec, path: string): Promise<void> {
  const { name, version } = await readManifest(packageIn(path, spec));
  if (name !== spec.name || !isSameVersion(spec.version, version))
    throw new Error(`the registry gave ${name}@${version} for ${directoryName(spec)}`);
}

/** Names below the directory; those of a scope with it. */
async function listPackages(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  const visible = names.filter((name) => !name.startsWith("."));
  const nested = visible.map(async (name) => {
    if (!name.startsWith("@")) return [name];
    return (await readdir(join(directory, name))).map((inner) => `${name}/${inner}`);
  });
  return (await Promise.all(nested)).flat();
}

function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
