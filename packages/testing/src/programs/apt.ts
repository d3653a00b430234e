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
import { cacheDirectory, scratchDirectory } from "../scratch.ts";

/**
 * A program of the distribution, fetched and checked by apt but not installed, so it needs no rights. Kept in the
 * cache. It is made aside and renamed, so that two runs at the same moment both end with a whole one; a lock would
 * have to be cleaned up after a killed run.
 */
export async function bringOnce(
  name: string,
  unpack: (work: string) => Promise<string>,
): Promise<string> {
  const home = join(cacheDirectory(), `${name}-${distribution()}-${process.arch}`);
  // Several may ask at once, e.g. the nodes of a cluster: they share one download.
  const bringing =
    underway.get(home) ?? unpackOnce(home, () => unpack(scratchDirectory(`bring-${name}`)));
  underway.set(home, bringing);
  await bringing.finally(() => underway.delete(home));
  return home;
}

const underway = new Map<string, Promise<void>>();

async function unpackOnce(home: string, unpack: () => Promise<string>): Promise<void> {
  if (existsSync(home)) return;
  const made = await unpack();
  try {
    renameSync(made, home);
  } catch (error) {
    if (!existsSync(home)) throw error; // else another run was faster, and its copy is as good
  }
}

const run = promisify(execFile);
const aptTimeoutMs = 300_000;

export type Apt = (command: string, ...args: string[]) => Promise<string>;

/**
 * apt with its state in `work`: the machine's own lists, locks and installed packages stay alone. `status` is the
 * list of what counts as installed.
 */
export function privateApt(work: string, { status = emptyFile(work) } = {}): Apt {
  mkdirSync(join(work, "lists/partial"), { recursive: true });
  mkdirSync(join(work, "cache/archives/partial"), { recursive: true });
  const options = [
    `Dir::State::lists=${work}/lists`,
    `Dir::State::status=${status}`,
    `Dir::Cache=${work}/cache`,
    // As root apt would drop to a user who cannot write here.
    "APT::Sandbox::User=root",
    "Acquire::Languages=none",
    "Acquire::Retries=2",
  ].flatMap((option) => ["-o", option]);
  return async (command, ...args) => {
    const limits = {
      cwd: work,
      timeout: aptTimeoutMs,
      maxBuffer: 64 * 1_048_576,
      env: { ...process.env, LC_ALL: "C" },
    };
    const { stdout } = await run(command, [...options, ...args], limits);
    return stdout;
  };
}

function emptyFile(work: string): string {
  const file = join(work, "status");
  writeFileSync(file, "");
  return file;
}

/** What every `.deb` in a directory holds, in one tree. */
export async function unpackPackages(directory: string, root: string): Promise<void> {
  const files = readdirSync(directory).filter((name) => name.endsWith(".deb"));
  for (const file of files) await run("dpkg-deb", ["-x", join(directory, file), root]);
}

export function libraryDirectories(home: string): string[] {
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
