import type * as e2eModule from "../tests/e2e/running-server.ts";
import type * as commandLineModule from "../tests/support/command-line.ts";
import type * as databaseModule from "../tests/support/database.ts";
import type * as nonceFleetModule from "../tests/support/nonce-fleet.ts";
import type * as postgresModule from "../tests/support/postgres.ts";
import type * as procModule from "../tests/support/proc.ts";
import type * as processModule from "../tests/support/process.ts";
import type * as programsModule from "../tests/support/programs.ts";
import type * as redisModule from "../tests/support/redis.ts";
import type * as redisAskModule from "../tests/support/redis-ask.ts";
import type * as registryModule from "../tests/support/registry.ts";
import type * as repositoryModule from "../tests/support/repository.ts";
import type * as scratchModule from "../tests/support/scratch.ts";
import type * as seededModule from "../tests/support/seeded.ts";

// The tests' support, from its build: the compiler does not rewrite paths from one project's output to another's.
const built = (file: string) =>
  import(new URL(`../../tests/dist/${file}.js`, import.meta.url).href);

export const { startServer, storeSettings }: typeof e2eModule = await built("e2e/running-server");
export const { createSeeded }: typeof seededModule = await built("support/seeded");
export const { chosen, readCommandLine, renderChoices }: typeof commandLineModule =
  await built("support/command-line");
export const { createDatabase }: typeof databaseModule = await built("support/database");
export const { call, startFleet, stopFleet }: typeof nonceFleetModule =
  await built("support/nonce-fleet");
export const { startPostgres }: typeof postgresModule = await built("support/postgres");
export const { cpuMsOf }: typeof procModule = await built("support/proc");
export const { startProcess, startTenure }: typeof processModule = await built("support/process");
export const { findPostgres, findRedis }: typeof programsModule = await built("support/programs");
export const { startRedis }: typeof redisModule = await built("support/redis");
export const { askRedis: readRedis }: typeof redisAskModule = await built("support/redis-ask");
export const { sweepOrphans }: typeof registryModule = await built("support/registry");
export const { commitNow }: typeof repositoryModule = await built("support/repository");
export const { scratchDirectory }: typeof scratchModule = await built("support/scratch");

export type RunningServer = e2eModule.RunningServer;
export type RunningProcess = processModule.RunningProcess;
