import { join } from "node:path";
import { libraryDirectories } from "./apt.ts";
import { bringPackage } from "./bring-package.ts";
import { type ProgramDirectory, versionOf } from "./program.ts";

/** The distribution's PgBouncer, fetched by apt but not installed. */
export async function bringPgBouncer(): Promise<ProgramDirectory> {
  return programsIn(await bringPackage({ name: "pgbouncer", packages: ["pgbouncer"], check }));
}

function programsIn(home: string): ProgramDirectory {
  return {
    directory: join(home, "usr/sbin"),
    origin: "apt's",
    env: { LD_LIBRARY_PATH: libraryDirectories(home).join(":") },
  };
}

async function check(root: string): Promise<void> {
  const { directory, env } = programsIn(root);
  const version = await versionOf(join(directory, "pgbouncer"), { env });
  if (version === undefined) throw new Error("the pgbouncer that apt brought does not run");
}
