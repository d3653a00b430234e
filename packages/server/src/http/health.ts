import { ROUTES } from "@tenure/protocol";
import type { Health } from "../health.ts";
import type { Telemetry } from "../telemetry.ts";
import { type Served, serve } from "./route.ts";

export function healthRoutes(options: {
  health: () => Promise<Health>;
  instanceId: string;
  telemetry: Telemetry;
}): Served[] {
  const { health, instanceId, telemetry } = options;
  return [
    serve(ROUTES.healthLive, async () => ({ status: "ok" as const })),
    serve(ROUTES.healthReady, async ({ reply }) => {
      const answer = await health();
      reply.code(answer.status === "ready" ? 200 : 503);
      return { ...answer, instance_id: instanceId };
    }),
    serve(ROUTES.readMetrics, async ({ reply }) => {
      reply.type(telemetry.registry.contentType);
      return telemetry.registry.metrics();
    }),
  ];
}
