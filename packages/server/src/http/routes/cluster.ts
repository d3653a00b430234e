import { ROUTES } from "@tenure/protocol";
import type { Delivery } from "../../delivery/contract.ts";
import type { Health } from "../../health.ts";
import type { Scope } from "../../kernel/scope.ts";
import type { Instance } from "../../membership/store/instance-store.ts";
import type { Timeline } from "../../nonces/timeline.ts";
import { VERSION } from "../../version.ts";
import { type Served, serve } from "../route.ts";
import { requireOperator } from "../scope.ts";

export interface ClusterSource {
  instanceId: string;
  phase2: boolean;
  health: () => Promise<Health>;
  instances: () => Promise<Instance[]>;
  /** The messages and dead letters of an instance; read only with a shared hot store. */
  backlog: Delivery["backlog"];
  timeline: Pick<Timeline, "status" | "confirm">;
}

export function clusterRoutes(source: ClusterSource): Served[] {
  const { instanceId, phase2, health, instances } = source;

  /** Only operators see the URL and the backlog of an instance. */
  async function render(instance: Instance, { operates }: Scope) {
    const { instance_id, boot_id, url, version, expires_at } = instance;
    const backlog = phase2 && operates ? await source.backlog(instance_id) : undefined;
    return {
      instance_id,
      boot_id,
      url: operates ? url : "",
      version,
      live: true,
      expires_at: expires_at.toISOString(),
      inbox_pending: backlog?.messages ?? null,
      dlq_length: backlog?.letters ?? null,
    };
  }

  /** Only operators see the reasons of a failure: the error texts of drivers contain hosts, ports and users. */
  const shownTo = <T extends { reason?: string | undefined }>(
    { operates }: Scope,
    { reason, ...rest }: T,
  ) => (operates && reason !== undefined ? { ...rest, reason } : rest);

  const view = async (scope: Scope) => ({
    server_id: instanceId,
    instance_id: instanceId,
    version: VERSION,
    phase2,
    instances: await Promise.all((await instances()).map((one) => render(one, scope))),
    dependencies: (await health()).dependencies.map((one) => shownTo(scope, one)),
    timeline_confirmed: source.timeline.status().state === "confirmed",
    timeline: shownTo(scope, source.timeline.status()),
  });

  return [
    serve(ROUTES.readCluster, ({ scope }) => view(scope)),
    serve(ROUTES.confirmTimeline, async ({ scope, act }) => {
      requireOperator(scope);
      await source.timeline.confirm(act?.actor);
      return view(scope);
    }),
  ];
}
