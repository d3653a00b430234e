import { join } from "node:path";
import { bringOnce, libraryDirectories, privateApt, unpackPackages } from "./apt.ts";
import { type ProgramDirectory, versionOf } from "./program.ts";

/** The distribution's Redis, fetched by apt but not installed. */
export async function bringRedis(): Promise<ProgramDirectory> {
  return programsIn(await bringOnce("redis", unpackRedis));
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
  await unpackPackages(work, root);
  // Before it goes into the cache: a package that does not run must not be found there next time.
  const { directory, env } = programsIn(root);
  const version = await versionOf(join(directory, "redis-server"), { env });
  if (version === undefined) throw new Error("the redis-server that apt brought does not run");
  return root;
}

/** The C library stays the machine's: it must fit the machine's loader. */
function libraries(depends: string): string[] {
  const named = [...depends.matchAll(/^ [ |]Depends: (lib\S+)$/gm)].map((match) => match[1] ?? "");
  return [...new Set(named)].filter((name) => name !== "libc6");
}
