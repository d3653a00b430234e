import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import { Redis } from "ioredis";

export const ADMIN = "admin-of-the-stage";
export const VIEWER = "viewer-of-the-stage";

/** Instances that share their stores, as they are when somebody runs Tenure for real. */
export interface Stage {
  readonly url: string;
  readonly servers: RunningServer[];
  /** Something in the first instance's inbox that nobody can read: it becomes a dead letter. */
  spoilInbox(bytes: Buffer): Promise<void>;
  /** A message past its deadline: it becomes a dead letter that can be sent again. */
  lateMessage(message: Record<string, unknown>): Promise<void>;
  stop(): Promise<void>;
}

export interface StageOptions {
  postgresUri: string;
  redisUrl: string;
  instances?: number;
  env?: Record<string, string>;
}

export async function raiseStage({
  postgresUri,
  redisUrl,
  instances = 1,
  env = {},
}: StageOptions): Promise<Stage> {
  const prefix = uniqueKeyPrefix();
  const settings = {
    ...storeSettings({ postgresUri, redisUrl }),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: prefix,
    TENURE_SCHEDULER_PHASE2_DLQ_SCAN_INTERVAL_MS: "200",
    TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_REFRESH_INTERVAL_MS: "500",
    TENURE_TOKENS: `admin:${ADMIN},viewer:${VIEWER}`,
    TENURE_AUTH_PEER_TOKEN: "peers-of-the-stage",
    ...env,
  };
  const servers: RunningServer[] = [];
  for (let made = 0; made < instances; made++) servers.push(await startServer({ env: settings }));
  const { url } = servers[0]!;
  const redis = new Redis(redisUrl);
  const { instance_id } = (await servers[0]!.get("/health/ready")).body as { instance_id: string };
  const inbox = `${prefix}:streams:{instance:${instance_id}}:inbox`;
  const add = async (bytes: Buffer): Promise<void> => {
    await until(() => redis.exists(inbox), { what: "the inbox of the instance" });
    await redis.xadd(inbox, "*", "m", bytes, "t", String(Date.now()));
  };
  return {
    url,
    servers,
    spoilInbox: add,
    lateMessage: (message) => add(Buffer.from(JSON.stringify(message))),
    async stop() {
      redis.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}
