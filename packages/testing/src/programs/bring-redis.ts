import { join } from "node:path";
import { libraryDirectories } from "./apt.ts";
import { bringPackage } from "./bring-package.ts";
import { type ProgramDirectory, versionOf } from "./program.ts";

/** The distribution's Redis, fetched by apt but not installed. */
export async function bringRedis(): Promise<ProgramDirectory> {
  const packages = ["redis-server", "redis-tools"];
  return programsIn(await bringPackage({ name: "redis", packages, check }));
}

function programsIn(home: string): ProgramDirectory {
  return {
    directory: join(home, "usr/bin"),
    origin: "apt's",
    env: { LD_LIBRARY_PATH: libraryDirectories(home).join(":") },
  };
}

async function check(root: string): Promise<void> {
  const { directory, env } = programsIn(root);
  const version = await versionOf(join(directory, "redis-server"), { env });
  if (version === undefined) throw new Error("the redis-server that apt brought does not run");
}
