import { TenureError, toErrorBody } from "@tenure/protocol";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import type { Log } from "../kernel/log.ts";

/** Renders every failure as the same body: a code, a sentence, and whether to retry. */
export function renderFailure(log: Log, bodyBytesMax: number) {
  return (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void => {
    const known = asTenureError(error, bodyBytesMax);
    if (known.code === "INTERNAL") {
      const route = request.routeOptions.url ?? request.url;
      log.error(
        { event: "request.failed", method: request.method, route, error },
        "request failed unexpectedly; answered 500",
      );
    }
    if (known.status === 401) reply.header("www-authenticate", "Bearer");
    reply.code(known.status).send(toErrorBody(known));
  };
}

export function notFound(request: FastifyRequest, reply: FastifyReply): void {
  const path = request.url.split("?")[0] ?? "";
  const error = new TenureError("NOT_FOUND", { what: "route", id: `${request.method} ${path}` });
  reply.code(error.status).send(toErrorBody(error));
}

/** Translates fastify's own rejections. Any other error is unexpected: the answer does not describe it. */
function asTenureError(error: FastifyError | TenureError, bodyBytesMax: number): TenureError {
  if (error instanceof TenureError) return error;
  if (error.statusCode === 413)
    return new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: bodyBytesMax });
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500) {
    return new TenureError("INVALID_REQUEST", { reason: error.message });
  }
  return new TenureError("INTERNAL", {}, { cause: error });
}
