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
  timelineConfirmed: () => Promise<boolean>;
  confirmTimeline: () => Promise<void>;
}

export function clusterRoutes(source: ClusterSource): Served[] {
  const { instanceId, phase2 } = source;
  const view = async () => ({
    server_id: instanceId,
    instance_id: instanceId,
    version: VERSION,
    phase2,
    instances: (await source.instances()).map(renderInstance),
    dependencies: (await source.health()).dependencies,
    timeline_confirmed: await source.timelineConfirmed(),
  });
  return [
    serve(ROUTES.readCluster, view),
    serve(ROUTES.confirmTimeline, async () => {
      await source.confirmTimeline();
      return view();
    }),
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
