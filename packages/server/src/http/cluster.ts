import { type Actor, ROUTES, type TimelineStatus } from "@tenure/protocol";
import type { Health } from "../health.ts";
import type { Instance } from "../membership/instance-store.ts";
import { VERSION } from "../version.ts";
import { type Served, serve } from "./route.ts";

export interface ClusterSource {
  instanceId: string;
  phase2: boolean;
  health: () => Promise<Health>;
  instances: () => Promise<Instance[]>;
  /** What waits for an instance; asked only with a shared hot state. */
  backlog: (instanceId: string) => Promise<Backlog>;
  timeline: { status(): TimelineStatus; confirm(actor?: Actor): Promise<void> };
}

export interface Backlog {
  messages: number;
  letters: number;
}

export function clusterRoutes(source: ClusterSource): Served[] {
  const { instanceId, phase2, health, instances } = source;

  async function render(instance: Instance) {
    const { instance_id, boot_id, url, version, expires_at } = instance;
    const backlog = phase2 ? await source.backlog(instance_id) : undefined;
    return {
      instance_id,
      boot_id,
      url,
      version,
      live: true,
      expires_at: expires_at.toISOString(),
      inbox_pending: backlog?.messages ?? null,
      dlq_length: backlog?.letters ?? null,
    };
  }

  const view = async () => ({
    server_id: instanceId,
    instance_id: instanceId,
    version: VERSION,
    phase2,
    instances: await Promise.all((await instances()).map(render)),
    dependencies: (await health()).dependencies,
    timeline_confirmed: source.timeline.status().state === "confirmed",
    timeline: source.timeline.status(),
  });

  return [
    serve(ROUTES.readCluster, view),
    serve(ROUTES.confirmTimeline, async ({ act }) => {
      await source.timeline.confirm(act?.actor);
      return view();
    }),
  ];
}
