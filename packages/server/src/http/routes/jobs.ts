import { ROUTES } from "@tenure/protocol";
import type { HttpJobs } from "../../jobs/api/http-api.ts";
import { payloadOfRequest } from "../../jobs/api/raw-json.ts";
import { requireGrantedPool } from "../child-access.ts";
import type { CallerOf } from "../job-callers.ts";
import { JsonReply, type Served, serve } from "../route.ts";
import { tenantToWrite } from "../scope.ts";

/** The caller's span from a W3C `traceparent` header; fields that later versions append are dropped. */
function traceOf(header: unknown): string | undefined {
  const form =
    /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?$/;
  const [, fields, more] = form.exec(String(header)) ?? [];
  if (fields === undefined || (more && String(header).startsWith("00"))) return undefined;
  return `00-${fields}`;
}

export function jobRoutes(jobs: HttpJobs, callerOf: CallerOf): Served[] {
  return [
    serve(
      ROUTES.submitJob,
      async ({ principal, scope, query, body, request, reply }) => {
        requireGrantedPool(principal, body.pool);
        const { name: token } = principal;
        const tenant = tenantToWrite(scope);
        const trace_id = body.trace_id ?? traceOf(request.headers.traceparent);
        const waitMs = query.wait_ms ?? 0;
        const payload = payloadOfRequest(request.bodyText);
        request.bodyText = ""; // Not kept while the caller waits, which may take minutes.
        const gone = new AbortController();
        if (waitMs > 0) reply.raw.on("close", () => gone.abort());
        const by = { tenant, token, waitMs, gone: gone.signal };
        const { job, ended } = await jobs.submit({ ...body, payload, trace_id }, by);
        reply.code(ended ? 200 : 202);
        return new JsonReply(job);
      },
      { bodyAsText: true },
    ),
    serve(ROUTES.listJobs, ({ query, ...by }) => jobs.list({ ...query, ...callerOf(by) })),
    serve(ROUTES.readJob, async ({ params, ...by }) => {
      const { tenant, token } = callerOf(by);
      return new JsonReply(await jobs.read(params.id, tenant, token));
    }),
    serve(ROUTES.readTurn, ({ params, ...by }) => {
      const { tenant, token } = callerOf(by);
      return jobs.readTurn(params.id, tenant, token);
    }),
    serve(ROUTES.cancelJob, async ({ params, ...by }) => {
      const { tenant, token } = callerOf(by);
      return new JsonReply(await jobs.cancel(params.id, tenant, token));
    }),
  ];
}
