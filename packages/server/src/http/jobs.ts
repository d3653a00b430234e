import { ROUTES } from "@tenure/protocol";
import type { HttpJobs } from "../jobs/client-desk.ts";
import { payloadOfRequest } from "../jobs/texts.ts";
import { JsonReply, type Served, serve } from "./route.ts";

/** The caller's span by W3C's `traceparent`; of a later version what version 00 has of it, else nothing. */
function traceOf(header: unknown): string | undefined {
  const form =
    /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?$/;
  const [, fields, more] = form.exec(String(header)) ?? [];
  if (fields === undefined || (more && String(header).startsWith("00"))) return undefined;
  return `00-${fields}`;
}

export function jobRoutes(jobs: HttpJobs): Served[] {
  return [
    serve(
      ROUTES.submitJob,
      async ({ principal: { tenant }, query, body, request, reply }) => {
        const trace_id = body.trace_id ?? traceOf(request.headers.traceparent);
        const waitMs = query.wait_ms ?? 0;
        const payload = payloadOfRequest(request.bodyText);
        request.bodyText = ""; // a caller may wait for minutes
        const gone = new AbortController();
        if (waitMs > 0) reply.raw.on("close", () => gone.abort());
        const by = { tenant, waitMs, gone: gone.signal };
        const { job, ended } = await jobs.submit({ ...body, payload, trace_id }, by);
        reply.code(ended ? 200 : 202);
        return new JsonReply(job);
      },
      { bodyAsText: true },
    ),
    serve(ROUTES.listJobs, ({ principal: { tenant }, query }) => jobs.list({ ...query, tenant })),
    serve(
      ROUTES.readJob,
      async ({ principal, params }) => new JsonReply(await jobs.read(params.id, principal.tenant)),
    ),
    serve(ROUTES.readTurn, ({ principal, params }) => jobs.readTurn(params.id, principal.tenant)),
    serve(
      ROUTES.cancelJob,
      async ({ principal, params }) =>
        new JsonReply(await jobs.cancel(params.id, principal.tenant)),
    ),
  ];
}
