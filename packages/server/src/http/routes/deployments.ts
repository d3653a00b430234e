import {
  type DeploymentStatus,
  type EnvValue,
  type LogLines,
  ROUTES,
  TenureError,
} from "@tenure/protocol";
import type { FastifyReply } from "fastify";
import type { Principal } from "../../access/principal.ts";
import type { DeploymentAdmin } from "../../deployments/deployment-admin.ts";
import type { FollowedLog } from "../../deployments/node-relay.ts";
import { requireMayGrant, requireOwnDeployment } from "../child-access.ts";
import { numberCursor } from "../page.ts";
import { type Served, serve } from "../route.ts";
import { requireAllTenants, tenantToWrite } from "../scope.ts";
import { type EventStream, eventText, openEventStream, whenClosed } from "../sse.ts";

/** The column is an int4. */
const REVISION_MAX = 999_999_999;

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
      requireMayGrant(principal, body.grants);
      const created = await deployments.create(by, { ...body, tenant });
      reply.code(201);
      return shownTo(principal, created);
    }),
    serve(ROUTES.readDeployment, async ({ params, principal, scope }) =>
      shownTo(principal, await deployments.read(scope, params.id)),
    ),
    serve(ROUTES.updateDeployment, async ({ params, body, principal, ...by }) => {
      if (body.tenant !== undefined) requireAllTenants(principal, "deployment");
      // Also what is granted already: the child would use it for another program.
      if (isLimited(principal))
        requireMayGrant(principal, (await deployments.read(by.scope, params.id)).grants);
      requireMayGrant(principal, body.grants);
      return shownTo(principal, await deployments.update(by, params.id, body));
    }),
    serve(ROUTES.deleteDeployment, async ({ params, reply, ...by }) => {
      await deployments.remove(by, params.id);
      reply.code(204);
      return undefined;
    }),
    serve(ROUTES.restartDeployment, async ({ params, forwarded, principal, ...by }) =>
      shownTo(principal, await deployments.restart(by, params.id, forwarded)),
    ),
    serve(ROUTES.rollbackDeployment, async ({ params, body, principal, ...by }) => {
      if (isLimited(principal)) {
        const reason =
          "a token with pools or signers rolls back no deployment, whose grants may be wider";
        throw new TenureError("FORBIDDEN", { reason });
      }
      return shownTo(principal, await deployments.rollBack(by, params.id, body.revision));
    }),
    serve(ROUTES.listRevisions, async ({ params, query: { limit, cursor }, ...by }) => {
      const { principal, scope } = by;
      const before = numberCursor(cursor, REVISION_MAX);
      const { items, last } = await deployments.revisions(scope, params.id, { limit, before });
      return {
        items: items.map((item) => shownTo(principal, item)),
        next_cursor: last === undefined ? null : String(last),
      };
    }),
    serve(ROUTES.explainDeployment, async ({ params, principal, scope }) =>
      deployments.why(scope, params.id, { withErrors: principal.role === "admin" }),
    ),
    serve(ROUTES.checkFence, async ({ principal, params, query, scope }) => {
      requireOwnDeployment(principal, params.id);
      return deployments.fence(scope, params.id, query.generation);
    }),
    serve(ROUTES.readLogs, async ({ params, query, forwarded, reply, scope }) => {
      const { follow, ...selection } = query;
      const request = { ...defined(selection), forwarded };
      if (!follow) return deployments.readLog(scope, params.id, request);
      const gone = new AbortController();
      whenClosed(reply, () => gone.abort());
      const log = await deployments.followLog(scope, params.id, request, gone.signal);
      await sendLog(reply, log, gone.signal);
      return undefined as never;
    }),
  ];
}

const isLimited = ({ pools, signers }: Principal): boolean =>
  pools !== undefined || signers !== undefined;

/** Only admins see the values of `env` and the last output of a program: both may contain secrets. */
function shownTo<T extends { env: Record<string, EnvValue>; status?: DeploymentStatus[] }>(
  { role }: Principal,
  view: T,
): T {
  if (role === "admin") return view;
  const env = Object.fromEntries(Object.keys(view.env).map((name) => [name, "***"]));
  const status = view.status?.map((one) => ({ ...one, last_error: null }));
  return { ...view, env, ...(status && { status }) };
}

/** Leaves out undefined fields: a node would take them as given. */
function defined<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> };
}

/** A reader further behind than this is disconnected. It knows its position and may follow again from there. */
const UNSENT_BYTES_MAX = 4 * 1_048_576;
const OPTIONS = { opening: ": following", unsentBytesMax: UNSENT_BYTES_MAX };

/** Sends the lines as server-sent events until the reader or the node disconnects. */
async function sendLog(reply: FastifyReply, log: FollowedLog, gone: AbortSignal): Promise<void> {
  if (log.from === "node") return sendNodeLog(reply, log, gone);
  const stream = openEventStream(reply, { ...OPTIONS, keepAlive: false });
  try {
    for await (const bytes of log.body) stream.write(bytes);
  } catch {} // The peer stopped, or the reader disconnected.
  return stream.end();
}

async function sendNodeLog(
  reply: FastifyReply,
  { start }: Extract<FollowedLog, { from: "node" }>,
  gone: AbortSignal,
): Promise<void> {
  const early: LogLines[] = [];
  let stream: EventStream | undefined;
  let isEnded = false;
  const end = (open: EventStream) => {
    open.write(eventText({}, "end"));
    open.end();
  };
  const stop = await start({
    onLines: (chunk) => void (stream ? stream.write(eventText(chunk)) : early.push(chunk)),
    ended() {
      isEnded = true;
      if (stream) end(stream);
    },
  });
  // Opened only now: until the node agrees, the answer may still be an error.
  stream = openEventStream(reply, OPTIONS);
  if (isEnded) return end(stream);
  for (const chunk of early) stream.write(eventText(chunk));
  if (gone.aborted) stop();
  else gone.addEventListener("abort", stop, { once: true });
}
