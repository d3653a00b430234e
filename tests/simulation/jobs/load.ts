import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { ServerParts } from "./parts.ts";

/** The server as it is built; `directory` is its `dist`. */
export async function loadServerParts(directory: string): Promise<ServerParts> {
  const load = async (file: string) =>
    (await import(/* @vite-ignore */ pathToFileURL(join(directory, file)).href)) as ServerParts;
  const { createJobs } = await load("jobs/jobs.js");
  const { openMemory } = await load("store/memory.js");
  const { claimOwner, dropOwner, ownerKeys } = await load("membership/store/owner-store.js");
  const { jobIn } = await load("jobs/store/memory-job.js");
  return { createJobs, openMemory, claimOwner, dropOwner, ownerKeys, jobIn };
}
