import { ROUTES } from "@tenure/protocol";
import type { HttpJobs } from "../jobs/client-desk.ts";
import { type Served, serve } from "./route.ts";

export function jobRoutes(jobs: HttpJobs): Served[] {
  return [
    serve(ROUTES.submitJob, async ({ principal: { tenant }, query, body, reply }) => {
      const { job, ended } = await jobs.submit(body, { tenant, waitMs: query.wait_ms ?? 0 });
      reply.code(ended ? 200 : 202);
      return job;
    }),
    serve(ROUTES.listJobs, ({ principal: { tenant }, query }) => jobs.list({ ...query, tenant })),
    serve(ROUTES.readJob, ({ principal, params }) => jobs.read(params.id, principal.tenant)),
    serve(ROUTES.readTurn, ({ principal, params }) => jobs.readTurn(params.id, principal.tenant)),
    serve(ROUTES.cancelJob, ({ principal, params }) => jobs.cancel(params.id, principal.tenant)),
  ];
}
