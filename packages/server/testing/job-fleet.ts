import { randomUUID } from "node:crypto";
import type { ServerToNode, ServerToSession } from "@tenure/protocol";
import { connectRawNode, type RawNode } from "@tenure/testing/fleet/raw-node";
import { connectRawSession, type RawSession } from "@tenure/testing/fleet/raw-session";
import type { TestDatabase } from "@tenure/testing/stores/database";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { until } from "@tenure/testing/until";
import type { App } from "../src/app.ts";
import { type Clock, systemClock } from "../src/kernel/clock.ts";
import { type Answer, openAppDatabase } from "./apps.ts";
import type { HotStoreKind } from "./hot-stores.ts";
import { startTestApp } from "./test-app.ts";

type FromServer<Type extends ServerToSession["type"]> = Extract<ServerToSession, { type: Type }>;
type ToNode<Type extends ServerToNode["type"]> = Extract<ServerToNode, { type: Type }>;

/** Instances over one hot store, with nodes and sessions that say what a test makes them say. */
export interface JobFleet {
  readonly apps: App[];
  /** The pool of the nodes and jobs of one test, unless it names another: what a test leaves is not the next one's. */
  readonly pool: string;
  readonly prefix: string;
  node(at: App, words?: NodeWords): Promise<JobNode>;
  session(at: App, words?: Record<string, unknown>): Promise<JobSession>;
  ask(
    at: App,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; body: Answer }>;
  /** Waits for a state in the record of a job. A session may miss a `job_update`. */
  reached(jobId: string, state: string, attemptId?: number): Promise<void>;
  /** One more instance; the settings of the others, changed. */
  start(env?: Record<string, string>, clock?: Clock): Promise<App>;
  /** Closes the peers of one test. */
  rest(): Promise<void>;
  stop(): Promise<void>;
}

export interface NodeWords extends Record<string, unknown> {
  of?: Parameters<typeof connectRawNode>[0]["key"];
  bootId?: string;
}

export interface JobNode extends RawNode {
  /** The n-th assignment it got, of any job, or those of one. */
  assigned(nth?: number, jobId?: string): Promise<ToNode<"job_assign">>;
  assignments(jobId?: string): ToNode<"job_assign">[];
  say(type: string, about: { job_id: string; attempt_id: number }, words?: object): void;
  /** Acknowledges, starts and ends an assignment. */
  finish(assign: { job_id: string; attempt_id: number }, words?: object): void;
  /** From now on it finishes whatever it is given, at once or after a while. */
  obey(afterMs?: number): void;
}

export interface JobSession extends RawSession {
  readonly sessionId: string;
  readonly resumeToken: string;
  submit(words?: Record<string, unknown>): { request_id: string };
  accepted(request: { request_id: string }): Promise<FromServer<"job_accepted">>;
  result(job: { job_id?: string; request_id?: string }): Promise<FromServer<"job_result">>;
  results(jobId?: string): FromServer<"job_result">[];
  states(jobId: string): string[];
  error(about: { request_id?: string; job_id?: string }): Promise<FromServer<"error">>;
  /** From now on it acknowledges every result. */
  obey(): void;
}

export async function openJobFleet(
  hot: HotStoreKind,
  { instances = 1, env = {} }: { instances?: number; env?: Record<string, string> } = {},
): Promise<JobFleet> {
  const database: TestDatabase = await openAppDatabase();
  const prefix = uniqueKeyPrefix();
  let tests = 0;
  const pool = () => `gpu-${tests}`;
  const start = (more: Record<string, string> = {}, clock: Clock = systemClock) =>
    startTestApp({ postgresUri: database.uri, hot, prefix, env: { ...env, ...more }, clock });
  const apps: App[] = [];
  for (let at = 0; at < instances; at++) apps.push(await start());
  const peers = new Set<{ close(): Promise<void> }>();

  async function rest(): Promise<void> {
    await Promise.all([...peers].map((peer) => peer.close()));
    peers.clear();
    tests += 1;
  }

  return {
    apps,
    get pool() {
      return pool();
    },
    prefix,
    async start(more, clock) {
      const app = await start(more, clock);
      apps.push(app);
      return app;
    },
    async node(at, { of, bootId, ...words } = {}) {
      const raw = await connectRawNode({
        url: at.url,
        ...(of && { key: of }),
        ...(bootId && { bootId }),
      });
      peers.add(raw);
      await raw.register({ tags: {}, pools: [pool()], capacity: 1, ...words });
      await until(() => seesEverywhere(apps, raw.key.address), { what: "a node that all see" });
      return asJobNode(raw);
    },
    async session(at, words = {}) {
      const raw = await connectRawSession({ url: at.url });
      peers.add(raw);
      const { session_id, resume_token } = await raw.init(words);
      return asJobSession(raw, pool(), { sessionId: session_id, resumeToken: resume_token });
    },
    ask,
    async reached(jobId, state, attemptId = 1) {
      const isReached = async () => {
        const { body } = await ask(apps[0] as App, "GET", `/jobs/${jobId}`);
        return body.state === state && body.attempt_id === attemptId;
      };
      await until(isReached, { what: `${state} in attempt ${attemptId}` });
    },
    rest,
    async stop() {
      await rest();
      await Promise.all(apps.map((app) => app.stop()));
      await database.drop();
    },
  };
}

async function ask(at: App, method: string, path: string, body?: unknown) {
  const response = await fetch(new URL(`/api/v1${path}`, at.url), {
    method,
    headers: { "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

/** Selection works with each instance's own view of the fleet. */
async function seesEverywhere(apps: readonly App[], nodeId: string): Promise<boolean> {
  const seen = await Promise.all(
    apps.map(async (app) => (await ask(app, "GET", `/nodes/${nodeId}`)).body.online === true),
  );
  return seen.every(Boolean);
}

function asJobNode(raw: RawNode): JobNode {
  const say: JobNode["say"] = (type, { job_id, attempt_id }, words = {}) =>
    raw.send({ type, job_id, attempt_id, ...words });
  const assignments = (jobId?: string) =>
    raw.received.filter(
      (message): message is ToNode<"job_assign"> =>
        message.type === "job_assign" && (jobId === undefined || message.job_id === jobId),
    );
  return {
    ...raw,
    say,
    assignments,
    assigned: (nth = 1, jobId) =>
      until(() => assignments(jobId)[nth - 1], {
        what: `assignment ${nth} of ${jobId ?? "any job"}`,
      }),
    finish,
    obey(afterMs = 0) {
      for (const assign of assignments()) finish(assign);
      raw.socket.on("message", (data) => {
        const message = JSON.parse(String(data)) as ServerToNode;
        if (message.type !== "job_assign") return;
        if (afterMs > 0) setTimeout(() => finish(message), afterMs);
        else finish(message);
      });
    },
  };

  function finish(
    assign: { job_id: string; attempt_id: number },
    words: object = { success: true, body: "done" },
  ): void {
    say("job_ack", assign);
    say("job_started", assign);
    say("job_result", assign, words);
  }
}

function asJobSession(
  raw: RawSession,
  pool: string,
  identity: { sessionId: string; resumeToken: string },
): JobSession {
  const find = <Type extends ServerToSession["type"]>(
    type: Type,
    fits: (message: FromServer<Type>) => boolean,
  ) =>
    raw.received.filter(
      (message): message is FromServer<Type> => message.type === type && fits(message as never),
    );
  const first = async <Type extends ServerToSession["type"]>(
    type: Type,
    about: { job_id?: string; request_id?: string },
  ): Promise<FromServer<Type>> => {
    const fits = (message: FromServer<Type>) =>
      Object.entries(about).every(([key, value]) => (message as never)[key] === value);
    const what = `${type} about ${JSON.stringify(about)}`;
    try {
      return (await until(() => find(type, fits)[0], { what, deadlineMs: 60_000 })) as never;
    } catch (error) {
      const heard = JSON.stringify(raw.received.slice(-5)).slice(0, 1_000);
      throw new Error(`${String(error)}; heard ${heard}`);
    }
  };
  return {
    ...raw,
    ...identity,
    submit(words = {}) {
      const request = { request_id: randomUUID(), pool, payload: null, ...words };
      raw.send({ type: "job_submit", ...request });
      return request;
    },
    accepted: ({ request_id }) => first("job_accepted", { request_id }),
    result: (about) => first("job_result", named(about)),
    results: (jobId) => find("job_result", ({ job_id }) => jobId === undefined || job_id === jobId),
    states: (jobId) =>
      find("job_update", ({ job_id }) => job_id === jobId).map(({ state }) => state),
    error: (about) => first("error", named(about)),
    obey() {
      raw.socket.on("message", (data) => {
        const { type, job_id } = JSON.parse(String(data)) as { type: string; job_id?: string };
        if (type === "job_result") raw.send({ type: "job_result_ack", job_id });
      });
    },
  };
}

/** A request carries more than its names. */
const named = ({ job_id, request_id }: { job_id?: string; request_id?: string }) => ({
  ...(job_id && { job_id }),
  ...(request_id && { request_id }),
});
