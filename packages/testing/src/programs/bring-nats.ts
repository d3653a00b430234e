import { join } from "node:path";
import { bringPackage } from "./bring-package.ts";
import { type ProgramDirectory, versionOf } from "./program.ts";

/** The distribution's NATS server, fetched by apt but not installed. */
export async function bringNats(): Promise<ProgramDirectory> {
  return programsIn(await bringPackage({ name: "nats", packages: ["nats-server"], check }));
}

/** A Go program: it needs no library but the C library. */
const programsIn = (home: string): ProgramDirectory => ({
  directory: join(home, "usr/sbin"),
  origin: "apt's",
  env: {},
});

async function check(root: string): Promise<void> {
  const version = await versionOf(join(programsIn(root).directory, "nats-server"), {});
  if (version === undefined) throw new Error("the nats-server that apt brought does not run");
}
