import { randomBytes, randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DeploymentView, DlqEntry, Job, NonceAllocation, Route } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { connectRawSession, type RawSession } from "@tenure/testing/fleet/raw-session";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { deliveryKeys } from "../../packages/server/src/delivery/delivery-keys.ts";
import { writeDoorbell } from "../../packages/server/src/delivery/doorbell.ts";
import { openRedis, waitUntilReady } from "../../packages/server/src/store/redis.ts";
import { redisSettings } from "../../packages/server/testing/hot-stores.ts";
import type { AttackedServer } from "./scene.ts";

/** Things of two tenants, each with the tenant's marker in every text that has room for one. */

export const TENANTS = ["default", "blue"] as const;

/** Only an operator may call these where there are several tenants. */
export const FLEET_ROUTES = new Set(["confirmTimeline", "releaseBrake"]);

export interface Things {
  marker: string;
  deployment: DeploymentView;
  job: Job;
  turnId: string;
  node: RawNode;
  hold: NonceAllocation;
  /** A viewer's token of the table. */
  tokenId: string;
  /** What only callers who see the tenant may read. */
  secrets: string[];
  /** Makes another deployment, for a call that deletes it. */
  spare(): Promise<DeploymentView>;
  /** Makes a dead letter about the job. */
  bury(): Promise<string>;
  /** Makes a secret, for a call that removes it, and returns its name. */
  spareSecret(): Promise<string>;
}

/** A file with a key for secrets. */
export function newKeyFile(): string {
  const path = join(scratchDirectory("keys"), "secret.keys");
  writeFileSync(path, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600 });
  return path;
}

export interface Owned {
  of(tenant: string): Things;
  close(): Promise<void>;
}

export async function furnish(server: AttackedServer, prefix: string): Promise<Owned> {
  const things = new Map<string, Things>();
  const letters = await openLetters(server, prefix);
  const sessions: RawSession[] = [];
  for (const tenant of TENANTS) {
    const marker = `marker-of-${tenant}`;
    const ask = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
      const answer = await server.as(`${tenant}-admin`, method, `/api/v1${path}`, body);
      if (answer.status >= 300) throw new Error(`${path}: ${JSON.stringify(answer.body)}`);
      return answer.body as T;
    };
    const create = (spec: object) =>
      ask<DeploymentView>("POST", "/deployments", {
        ...{ command: `echo ${marker}`, args: [marker], env: { KEY: marker } },
        ...spec,
      });
    const node = await connectNode(server, tenant, marker);
    await ask("PUT", `/secrets/${marker}`, { value: "the value" });
    const created = await ask<{ id: string }>("POST", "/tokens", {
      ...{ name: `${marker}-token`, role: "viewer" },
    });
    const tokenId = created.id;
    const deployment = await create({ name: `${marker}-web` });
    await ask("PATCH", `/deployments/${deployment.id}`, { args: [marker, "2"] });
    const candidates = [{ id: deployment.id, generation: deployment.generation }];
    node.send({ type: "request", id: "claim", method: "deployment.claim", params: { candidates } });
    await node.receive("response", ({ id }) => id === "claim");
    await create({ name: `${marker}-daemon`, type: "daemon" });
    const request_id = `${marker}-request`;
    const job = await ask<Job>("POST", "/jobs", { request_id, pool: marker, payload: marker });
    const session = await connectRawSession({ url: server.url });
    sessions.push(session);
    await session.init({ token: server.secretOf(`${tenant}-session`) });
    const turned = { request_id: `${marker}-turn`, pool: marker, payload: marker, turn: true };
    session.send({ type: "job_submit", ...turned });
    const { turn_id: turnId } = await session.receive("job_accepted");
    if (!turnId) throw new Error("the job has no turn");
    const spare = () => create({ name: `${marker}-${randomUUID()}`, enabled: false });
    const path = `/api/v1/signers/eip155:1:${marker}/nonces?tenant=${tenant}`;
    const allocated = await server.as("all-admin", "POST", path, { request_id: marker });
    if (allocated.status !== 200) throw new Error(`${path}: ${JSON.stringify(allocated.body)}`);
    const hold = allocated.body as NonceAllocation;
    const spareSecret = async () => {
      const name = `spare-${randomUUID()}`;
      await ask("PUT", `/secrets/${name}`, { value: "the value" });
      return name;
    };
    const bury = () => letters.bury(job.job_id);
    await bury();
    const ids = [deployment.id, job.job_id, turnId, node.key.address, hold.hold_id, tokenId];
    const made = {
      marker,
      deployment,
      job,
      turnId,
      node,
      hold,
      tokenId,
      secrets: [marker, ...ids],
    };
    things.set(tenant, { ...made, spare, spareSecret, bury });
  }
  return {
    of: (tenant) => things.get(tenant)!,
    async close() {
      await letters.close();
      await Promise.all(sessions.map((session) => session.close()));
      await Promise.all([...things.values()].map(({ node }) => node.close()));
    },
  };
}

/** Puts messages that are too late into the server's inbox, as another instance would. */
async function openLetters(server: AttackedServer, prefix: string) {
  const store = openRedis({ ...redisSettings("redis"), prefix });
  await waitUntilReady(store, 60_000);
  return {
    async bury(jobId: string): Promise<string> {
      const { body } = await server.as("all-admin", "GET", "/api/v1/cluster");
      const inbox = deliveryKeys.inbox(prefix, (body as { instance_id: string }).instance_id);
      const kind = `late-${randomUUID()}`;
      const message = writeDoorbell({ kind, job_id: jobId, attempt_id: 1, deadline_ms: 0 });
      await store.client.xadd(inbox, "*", "m", message, "t", "1");
      const find = async (): Promise<DlqEntry | undefined> => {
        const listed = await server.as("all-admin", "GET", "/api/v1/dlq?limit=500");
        return (listed.body as { items: DlqEntry[] }).items.find((one) => one.kind === kind);
      };
      await until(async () => (await find()) !== undefined, { what: "the dead letter" });
      return (await find())!.id;
    },
    close: () => store.close(),
  };
}

/** A node-unit and worker of the tenant that answers for its log, and takes its jobs without an end. */
async function connectNode(
  server: AttackedServer,
  tenant: string,
  marker: string,
): Promise<RawNode> {
  const node = await connectRawNode({ url: server.url });
  node.socket.on("message", (data) => {
    const message = JSON.parse(data.toString());
    if (message.type !== "request") return;
    const result = message.method === "log.read" ? { lines: [marker], next: "0:0" } : {};
    node.send({ type: "response", id: message.id, result });
  });
  await node.register({
    token: server.secretOf(`${tenant}-node`),
    ...{ name: `${marker}-node`, labels: { zone: marker }, tags: { node_unit: true, of: marker } },
    ...{ pools: [marker], services: [marker], capacity: 100, custom_command: true },
  });
  return node;
}

/** The path and the body of a call of this route about these things. */
export async function callsOf(
  route: Route,
  name: string,
  things: Things,
  isAllowed: boolean,
): Promise<{ path: string; body?: unknown }> {
  const { marker, deployment, job, turnId, node } = things;
  const id = name === "deleteDeployment" && isAllowed ? (await things.spare()).id : deployment.id;
  const letter = route.path.includes("/dlq/") && isAllowed ? await things.bury() : "nobody:1-1";
  const secret = name === "removeSecret" && isAllowed ? await things.spareSecret() : "a-secret";
  const ids: Record<string, string> = {
    "/deployments/": id,
    "/jobs/": job.job_id,
    "/turns/": turnId,
    "/nodes/": node.key.address,
    "/dlq/": letter,
    "/signers/": `eip155:1:${marker}`,
    "/tokens/": things.tokenId,
  };
  const found = Object.entries(ids).find(([part]) => route.path.includes(part))?.[1] ?? "";
  const path = route.path
    .replace(":id", encodeURIComponent(found))
    .replace(":signer", encodeURIComponent(found))
    .replace(":name", secret)
    .replace(":nonce", String(things.hold.nonce));
  return { path: `${path}${QUERIES[name] ?? ""}`, ...bodyOf(route, name, things) };
}

const QUERIES: Record<string, string> = { checkFence: "?generation=1" };

function bodyOf(route: Route, name: string, { marker, hold }: Things): { body?: unknown } {
  if (route.method === "GET") return {};
  const bodies: Record<string, unknown> = {
    createDeployment: { name: `new-${randomUUID()}`, command: "true", enabled: false },
    updateDeployment: { enabled: true },
    submitJob: {
      request_id: `new-${randomUUID()}`,
      pool: "nowhere",
      payload: 1,
      pending_ms: 1,
    },
    setSecret: { value: "another value" },
    createToken: { name: `new-${randomUUID()}`, role: "viewer" },
    login: { token: "no such token at all" },
    raiseSigner: { next_nonce: 1 },
    allocateNonces: { request_id: randomUUID() },
    // With the true hold id, so that only the tenant stands between.
    markNonceUsed: { hold_id: hold.hold_id, tx_hash: `0x${"0".repeat(64)}` },
    markNonceRecyclable: { hold_id: hold.hold_id, reason: "x" },
    moveSigner: { tenant: marker.replace("marker-of-", "") },
    resolveNonce: { status: "CONSUMED", reason: "x" },
  };
  return { body: bodies[name] ?? {} };
}
