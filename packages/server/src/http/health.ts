import { ROUTES, type TimelineStatus } from "@tenure/protocol";
import type { Health } from "../health.ts";
import type { Telemetry } from "../telemetry.ts";
import { type Served, serve } from "./route.ts";

export function healthRoutes(options: {
  health: () => Promise<Health>;
  instanceId: string;
  telemetry: Telemetry;
  timeline: { status(): TimelineStatus };
}): Served[] {
  const { health, instanceId, telemetry, timeline } = options;
  return [
    serve(ROUTES.healthLive, async () => ({ status: "ok" as const })),
    serve(ROUTES.healthReady, async ({ reply }) => {
      const answer = await health();
      reply.code(answer.status === "ready" ? 200 : 503);
      // Beside the status and no part of it: deployments and jobs go on, and an instance that leaves the load balancer
      // could not be asked to confirm.
      return { ...answer, instance_id: instanceId, nonces: { timeline: timeline.status() } };
    }),
    serve(ROUTES.readMetrics, async ({ reply }) => {
      reply.type(telemetry.registry.contentType);
      return telemetry.registry.metrics();
    }),
  ];
}
