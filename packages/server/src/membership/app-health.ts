import { createHealth, type Health, type Phase, shareWrite } from "../health.ts";
import { sql } from "../store/sql.ts";
import type { InstanceCore } from "./app-instance.ts";
import { INSTANCE_TTL_MS } from "./instance.ts";
import type { MembersService } from "./members.ts";
import { renewInstance } from "./store/instance-store.ts";

export interface AppHealthOptions extends InstanceCore {
  phase: () => Phase;
  members: Pick<MembersService, "checkRead">;
}

/** The readiness of this instance: both stores, and the members, which may be unreadable while Postgres answers. */
export function createAppHealth(options: AppHealthOptions): () => Promise<Health> {
  const { db, hot, telemetry, members } = options;
  return createHealth({
    ...options,
    dependencies: [
      { name: "postgres", kind: db.kind, ping: createPostgresCheck(options) },
      {
        ...{ name: hot.kind === "memory" ? "memory" : "redis", kind: hot.kind },
        ping: () => hot.ping(),
      },
      { name: "members", kind: db.kind, ping: () => members.checkRead() },
    ],
    onAnswer: (dependency, ok) => telemetry.dependencyUp.set({ dependency }, ok ? 1 : 0),
  });
}

/** Checks that Postgres takes writes: a standby, or a server with a full disk, still answers reads. */
function createPostgresCheck(core: InstanceCore): () => Promise<void> {
  const { db, presenceDb, clock, instanceId, bootId } = core;
  const term = { instanceId, bootId, ttlMs: INSTANCE_TTL_MS };
  // The embedded store has one session: behind the statements of a busy node the check would take it for down.
  const checked = db.kind === "embedded" ? presenceDb : db;
  const write = shareWrite(() => renewInstance(checked, term), clock);
  return async () => {
    await Promise.all([checked.query(sql`select 1`), write(), db.checkDisk()]);
  };
}
