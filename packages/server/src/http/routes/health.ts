import { DEFAULT_TENANT, ROUTES, serves, type TimelineStatus } from "@tenure/protocol";
import { ANONYMOUS, type Principal } from "../../access/principal.ts";
import type { Health } from "../../health.ts";
import type { Telemetry } from "../../telemetry.ts";
import { type Served, serve } from "../route.ts";
import { requireOperator } from "../scope.ts";

export function healthRoutes(options: {
  health: () => Promise<Health>;
  instanceId: string;
  telemetry: Telemetry;
  timeline: { status(): TimelineStatus };
}): Served[] {
  const { health, instanceId, telemetry, timeline } = options;
  return [
    serve(ROUTES.healthLive, async () => ({ status: "ok" as const })),
    serve(ROUTES.healthReady, async ({ reply, principal, scope }) => {
      const maySeeReasons = isReader(principal) && scope.operates;
      const answer = maySeeReasons ? await health() : withoutReasons(await health());
      reply.code(answer.status === "ready" ? 200 : 503);
      // Not part of the status: deployments and jobs go on, and an instance that the load balancer dropped could not be
      // asked to confirm.
      const { state, reason } = timeline.status();
      const shown = maySeeReasons && reason !== undefined ? { state, reason } : { state };
      return { ...answer, instance_id: instanceId, nonces: { timeline: shown } };
    }),
    serve(ROUTES.readMetrics, async ({ reply, scope }) => {
      if (!serves(scope.tenants, DEFAULT_TENANT)) requireOperator(scope);
      reply.type(telemetry.registry.contentType);
      return telemetry.registry.metrics();
    }),
  ];
}

/** The error texts of drivers contain hosts, ports and users. */
const withoutReasons = ({ status, dependencies }: Health): Health => ({
  status,
  dependencies: dependencies.map(({ name, kind, ok }) => ({ name, kind, ok })),
});

const isReader = (principal: Principal): boolean =>
  principal !== ANONYMOUS && (principal.role === "admin" || principal.role === "viewer");
