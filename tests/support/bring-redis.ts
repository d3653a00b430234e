import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { type ProgramDirectory, versionOf } from "./program.ts";
import { cacheDirectory, scratchDirectory } from "./scratch.ts";

/**
 * The distribution's Redis, fetched and checked by apt but not installed, so it needs no rights.
 * Kept in the cache. It is made aside and renamed, so that two runs at the same moment both end
 * with a whole one; a lock would have to be cleaned up after a killed run.
 */
export async function bringRedis(): Promise<ProgramDirectory> {
  const home = join(cacheDirectory(), `redis-${distribution()}-${process.arch}`);
  // The nodes of a cluster start together: they share one download.
  const bringing = underway.get(home) ?? unpackOnce(home);
  underway.set(home, bringing);
  await bringing.finally(() => underway.delete(home));
  return programsIn(home);
}

const underway = new Map<string, Promise<void>>();

async function unpackOnce(home: string): Promise<void> {
  if (existsSync(home)) return;
  const made = await unpackRedis(scratchDirectory("bring-redis"));
  try {
    renameSync(made, home);
  } catch (error) {
    if (!existsSync(home)) throw error; // else another run was faster, and its copy is as good
  }
}

function programsIn(home: string): ProgramDirectory {
  return {
    directory: join(home, "usr/bin"),
    origin: "apt's",
    env: { LD_LIBRARY_PATH: libraryDirectories(home).join(":") },
  };
}

async function unpackRedis(work: string): Promise<string> {
  const apt = privateApt(work);
  // A source of the machine that does not answer is no reason to give up: the download decides.
  const updated = await apt("apt-get", "update").then(
    () => undefined,
    (error: Error) => error,
  );
  const packages = ["redis-server", "redis-tools"];
  try {
    const depends = await apt("apt-cache", "depends", ...packages);
    await apt("apt-get", "download", ...packages, ...libraries(depends));
  } catch (error) {
    throw updated ?? error;
  }
  const root = join(work, "root");
  const files = readdirSync(work).filter((name) => name.endsWith(".deb"));
  for (const file of files) await run("dpkg-deb", ["-x", join(work, file), root]);
  // Before it goes into the cache: a package that does not run must not be found there next time.
  const { directory, env } = programsIn(root);
  const version = await versionOf(join(directory, "redis-server"), { env });
  if (version === undefined) throw new Error("the redis-server that apt brought does not run");
  return root;
}

const run = promisify(execFile);
const aptTimeoutMs = 180_000;

/** apt with its state in `work`: the machine's own lists, locks and installed packages stay alone. */
function privateApt(work: string): (command: string, ...args: string[]) => Promise<string> {
  mkdirSync(join(work, "lists/partial"), { recursive: true });
  mkdirSync(join(work, "cache/archives/partial"), { recursive: true });
  writeFileSync(join(work, "status"), "");
  const options = [
    `Dir::State::lists=${work}/lists`,
    `Dir::State::status=${work}/status`,
    `Dir::Cache=${work}/cache`,
    // As root apt would drop to a user who cannot write here.
    "APT::Sandbox::User=root",
    "Acquire::Languages=none",
    "Acquire::Retries=2",
  ].flatMap((option) => ["-o", option]);
  return async (command, ...args) => {
    const limits = { cwd: work, timeout: aptTimeoutMs, env: { ...process.env, LC_ALL: "C" } };
    const { stdout } = await run(command, [...options, ...args], limits);
    return stdout;
  };
}

/** The C library stays the machine's: it must fit the machine's loader. */
function libraries(depends: string): string[] {
  const named = [...depends.matchAll(/^ [ |]Depends: (lib\S+)$/gm)].map((match) => match[1] ?? "");
  return [...new Set(named)].filter((name) => name !== "libc6");
}

function libraryDirectories(home: string): string[] {
  const files = readdirSync(home, { recursive: true, encoding: "utf8" });
  const shared = files.filter((file) => /\.so(\.|$)/.test(file));
  return [...new Set(shared.map((file) => join(home, dirname(file))))];
}

/** The cache may be seen by several systems that share a temporary directory. */
function distribution(): string {
  const release = readFileSync("/etc/os-release", "utf8");
  const field = (name: string) => new RegExp(`^${name}="?([^"\\n]*)`, "m").exec(release)?.[1] ?? "";
  return `${field("ID")}-${field("VERSION_ID")}`;
}
