import type { DeploymentView, Member } from "@tenure/protocol";
import {
  type DeploymentsOf,
  deploymentsOf,
  runningStatuses,
  SLEEPER,
} from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit, type UnitOptions } from "@tenure/testing/fleet/node-unit";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { createDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { Client } from "pg";

/** A server on real Postgres and Redis, and node-units as real processes. */
export interface UnitScene extends DeploymentsOf {
  readonly server: RunningServer;
  readonly db: Client;
  start(
    name: string,
    env?: Record<string, string>,
    options?: Partial<UnitOptions>,
  ): Promise<RunningUnit>;
  /** So many deployments that run until they are stopped, of the same kind. */
  createSleepers(count: number, prefix?: string): Promise<DeploymentView[]>;
  /** Until the server names them as members: before that nobody counts on them when it claims. */
  untilMembers(units: readonly RunningUnit[]): Promise<void>;
  /** Until every enabled deployment runs, on one of these nodes. */
  untilAllRun(units: readonly RunningUnit[]): Promise<DeploymentView[]>;
  tenure(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }>;
  /** Ends every node-unit and removes every deployment; the server stays. */
  clear(): Promise<void>;
  stop(): Promise<void>;
}

// A busy machine may take many times as long as an idle one; only never is wrong.
export const DEADLINE_MS = 60_000;

export async function startUnitScene(env: Record<string, string> = {}): Promise<UnitScene> {
  const { postgresAdminUri, redisUrl } = stores();
  const database = await createDatabase(postgresAdminUri);
  const server = await startServer({
    env: {
      ...storeSettings({ postgresUri: database.uri, redisUrl }),
      TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
      // Whole fleets come and go here, which is what the brake is there to doubt.
      TENURE_MEMBERSHIP_MASS_LOSS_BRAKE: "false",
      ...env,
    },
    args: ["--log-level", "warn"],
  });
  const db = new Client({ connectionString: database.uri });
  await db.connect();
  const deployments = deploymentsOf(server.url);
  const units: RunningUnit[] = [];

  async function clear(): Promise<void> {
    await Promise.all(units.splice(0).map((unit) => unit.kill9()));
    await db.query("delete from deployment");
  }

  return {
    ...deployments,
    server,
    db,
    async start(name, unitEnv = {}, options = {}) {
      const unit = await startUnit({ name, urls: [server.url], env: unitEnv, ...options });
      units.push(unit);
      return unit;
    },
    createSleepers: (count, prefix = "sleeper") =>
      Promise.all(
        Array.from({ length: count }, (_, n) =>
          deployments.create({ name: `${prefix}-${n + 1}`, command: SLEEPER }),
        ),
      ),
    async untilMembers(wanted) {
      const all = async () => {
        const { body } = await server.get("/api/v1/membership");
        const { members } = body as { members: Member[] };
        const known = new Set(members.map(({ address }) => address));
        return wanted.every(({ address }) => known.has(address));
      };
      await until(all, { deadlineMs: DEADLINE_MS, what: "every node-unit to be a member" });
    },
    async untilAllRun(on) {
      const addresses = on.map(({ address }) => address);
      const runs = (view: DeploymentView) => {
        const where = runningStatuses(view).map(({ address }) => address);
        return view.type === "daemon"
          ? addresses.every((address) => where.includes(address))
          : where.some((address) => addresses.includes(address));
      };
      const all = async () => {
        const views = (await deployments.list()).filter(({ enabled }) => enabled);
        return views.every(runs) && views;
      };
      return until(all, { deadlineMs: DEADLINE_MS, everyMs: 50, what: "everything to run" });
    },
    async tenure(...args) {
      const run = startTenure([...args, "--url", server.url]);
      const { code } = await run.exited;
      return { code, stdout: run.stdout(), stderr: run.stderr() };
    },
    clear,
    async stop() {
      await clear();
      await db.end();
      await server.stop();
      await database.drop();
    },
  };
}
