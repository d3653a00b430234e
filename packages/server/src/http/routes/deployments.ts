import {
  type DeploymentStatus,
  type LogLines,
  ROUTES,
  SSE_TYPE,
  TenureError,
} from "@tenure/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { DeploymentAdmin } from "../../deployments/deployment-admin.ts";
import { FORWARDED_HEADER, type FollowedLog } from "../../deployments/node-relay.ts";
import { mayForward, type Principal } from "../auth.ts";
import { type Served, serve } from "../route.ts";
import { requireAllTenants, tenantToWrite } from "../scope.ts";

export function deploymentRoutes(deployments: DeploymentAdmin): Served[] {
  return [
    serve(ROUTES.listDeployments, async ({ principal, scope, query }) => {
      const { limit, cursor, type, enabled, address } = query;
      const page = await deployments.list({
        ...{ scope, limit, afterName: cursor, type, enabled, address },
      });
      return { ...page, items: page.items.map((item) => shownTo(principal, item)) };
    }),
    serve(ROUTES.createDeployment, async ({ reply, body, principal, ...by }) => {
      const tenant = tenantToWrite(by.scope, body.tenant);
      const created = await deployments.create(by, { ...body, tenant });
      reply.code(201);
      return shownTo(principal, created);
    }),
    serve(ROUTES.readDeployment, async ({ params, principal, scope }) =>
      shownTo(principal, await deployments.read(scope, params.id)),
    ),
    serve(ROUTES.updateDeployment, async ({ params, body, principal, ...by }) => {
      if (body.tenant !== undefined) requireAllTenants(principal, "deployment");
      return shownTo(principal, await deployments.update(by, params.id, body));
    }),
    serve(ROUTES.deleteDeployment, async ({ params, reply, ...by }) => {
      await deployments.remove(by, params.id);
      reply.code(204);
      return undefined;
    }),
    serve(ROUTES.restartDeployment, async ({ params, request, principal, ...by }) => {
      const forwarded = isForwarded(request, principal);
      return shownTo(principal, await deployments.restart(by, params.id, forwarded));
    }),
    serve(ROUTES.rollbackDeployment, async ({ params, body, principal, ...by }) =>
      shownTo(principal, await deployments.rollBack(by, params.id, body.revision)),
    ),
    serve(ROUTES.listRevisions, async ({ params, query: { limit, cursor }, ...by }) => {
      const { principal, scope } = by;
      const before = cursor === undefined ? undefined : parseRevision(cursor);
      const { items, last } = await deployments.revisions(scope, params.id, { limit, before });
      return {
        items: items.map((item) => shownTo(principal, item)),
        next_cursor: last === undefined ? null : String(last),
      };
    }),
    serve(ROUTES.explainDeployment, async ({ params, principal, scope }) =>
      deployments.why(scope, params.id, { withErrors: principal.role === "admin" }),
    ),
    serve(ROUTES.checkFence, async ({ params, query, scope }) =>
      deployments.fence(scope, params.id, query.generation),
    ),
    serve(ROUTES.readLogs, async ({ params, query, request, reply, principal, scope }) => {
      const { follow, ...selection } = query;
      const asked = { ...defined(selection), forwarded: isForwarded(request, principal) };
      if (!follow) return deployments.readLog(scope, params.id, asked);
      const gone = new AbortController();
      reply.raw.on("close", () => gone.abort());
      const log = await deployments.followLog(scope, params.id, asked, gone.signal);
      await sendEvents(reply, log, gone.signal);
      return undefined as never;
    }),
  ];
}

/** Values of `env` may be secrets, and so may what a program wrote before it ended; that a variable is set is not one. */
function shownTo<T extends { env: Record<string, string>; status?: DeploymentStatus[] }>(
  { role }: Principal,
  view: T,
): T {
  if (role === "admin") return view;
  const env = Object.fromEntries(Object.keys(view.env).map((name) => [name, "***"]));
  const status = view.status?.map((one) => ({ ...one, last_error: null }));
  return { ...view, env, ...(status && { status }) };
}

function parseRevision(cursor: string): number {
  if (/^\d{1,9}$/.test(cursor)) return Number(cursor);
  throw new TenureError("INVALID_REQUEST", { reason: "cursor: is not one this server made" });
}

/** From another caller than an instance the header means nothing: it would suppress the event of a restart. */
const isForwarded = (request: FastifyRequest, principal: Principal): boolean =>
  mayForward(principal) && request.headers[FORWARDED_HEADER] !== undefined;

/** Fields that were left out stay out: a node would read them as given. */
function defined<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> };
}

const KEEP_ALIVE_MS = 15_000;
/** A reader further behind than this is cut off: it knows the position it reached, and may follow again. */
const UNSENT_BYTES_MAX = 4 * 1_048_576;

/** Lines as server-sent events, until the reader goes or the node does. */
async function sendEvents(reply: FastifyReply, log: FollowedLog, gone: AbortSignal): Promise<void> {
  const { raw } = reply;
  const write = (text: string | Uint8Array): void => {
    if (raw.writableLength > UNSENT_BYTES_MAX) raw.destroy();
    else raw.write(text);
  };
  const begin = (): void => {
    reply.hijack();
    raw.writeHead(200, {
      "content-type": SSE_TYPE,
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    raw.write(": following\n\n");
  };
  if (log.from === "peer") {
    begin();
    await relay(log.body, write).catch(() => {});
    raw.end();
    return;
  }
  const early: LogLines[] = [];
  let hear = (chunk: LogLines): void => void early.push(chunk);
  // An answer that is no stream is still possible until the node has agreed.
  const stop = await log.start({
    hear: (chunk) => hear(chunk),
    ended() {
      write("event: end\ndata: {}\n\n");
      raw.end();
    },
  });
  begin();
  hear = (chunk) => write(`data: ${JSON.stringify(chunk)}\n\n`);
  for (const chunk of early) hear(chunk);
  const keepAlive = setInterval(() => write(": still here\n\n"), KEEP_ALIVE_MS);
  const end = (): void => {
    clearInterval(keepAlive);
    stop();
  };
  if (gone.aborted) end();
  else gone.addEventListener("abort", end, { once: true });
}

async function relay(
  body: ReadableStream<Uint8Array>,
  write: (bytes: Uint8Array) => void,
): Promise<void> {
  for await (const bytes of body) write(bytes);
}
