import { ROUTES } from "@tenure/protocol";
import type { Health } from "../health.ts";
import type { Instance } from "../membership/instance-store.ts";
import { VERSION } from "../version.ts";
import { type Served, serve } from "./route.ts";

export interface ClusterSource {
  instanceId: string;
  phase2: boolean;
  health: () => Promise<Health>;
  instances: () => Promise<Instance[]>;
}

export function clusterRoutes({ instanceId, phase2, health, instances }: ClusterSource): Served[] {
  return [
    serve(ROUTES.readCluster, async () => ({
      server_id: instanceId,
      instance_id: instanceId,
      version: VERSION,
      phase2,
      instances: (await instances()).map(renderInstance),
      dependencies: (await health()).dependencies,
      timeline_confirmed: true,
    })),
  ];
}

const renderInstance = ({ instance_id, boot_id, url, version, expires_at }: Instance) => ({
  instance_id,
  boot_id,
  url,
  version,
  live: true,
  expires_at: expires_at.toISOString(),
  inbox_pending: null,
  dlq_length: null,
});
