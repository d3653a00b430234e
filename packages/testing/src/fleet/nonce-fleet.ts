import { Agent, request } from "node:http";
import { Client } from "pg";
import { type RunningProcess, startTenure } from "../processes/process.ts";
import { FLEET_TOKEN } from "./fleet-token.ts";

/** One server process of a fleet that shares a Postgres. */
export interface FleetMember extends RunningProcess {
  readonly url: string;
}

export interface Reply {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a checker reads answers of every shape
  body: any;
}

/** Starts servers one after another: the first one migrates. */
export async function startFleet(
  uri: string,
  members: { env?: Record<string, string>; conditions?: string[]; postgresUri?: string }[],
): Promise<FleetMember[]> {
  const fleet: FleetMember[] = [];
  for (const { env = {}, conditions = [], postgresUri = uri } of members) {
    const running = startTenure(["server", "--port", "0", "--log-level", "error"], {
      env: { POSTGRES_URI: postgresUri, ...env },
      conditions,
    });
    const [, url] = await running.waitForLine(/ready at (\S+)/, 60_000);
    fleet.push({ ...running, url: url! });
  }
  return fleet;
}

export async function stopFleet(fleet: FleetMember[]): Promise<void> {
  await Promise.all(fleet.map((member) => member.stop(30_000)));
}

const agent = new Agent({ keepAlive: true, maxSockets: 256 });

/** Rejects when there is no answer: whether the server did it is then unknown. */
export function call(
  url: string,
  path: string,
  {
    body,
    method = body === undefined ? "GET" : "POST",
    headers = {},
    timeoutMs = 10_000,
  }: { body?: unknown; method?: string; headers?: Record<string, string>; timeoutMs?: number } = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const sent = request(
      new URL(`/api/v1${path}`, url),
      {
        method,
        agent,
        timeout: timeoutMs,
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${FLEET_TOKEN}`,
          ...headers,
        },
      },
      (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("error", reject);
        response.on("end", () => {
          const answer = Buffer.concat(parts).toString();
          resolve({
            status: response.statusCode ?? 0,
            body: answer ? JSON.parse(answer) : undefined,
          });
        });
      },
    );
    sent.on("timeout", () => sent.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    sent.on("error", reject);
    sent.end(text);
  });
}

export async function withClient<T>(uri: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: uri });
  client.on("error", () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** A nonce as a caller received it. */
export interface Told {
  requestId: string;
  nonce: number;
  holdId: string;
  /** What its holder did with it, when that was answered. */
  marked?: "used" | "recyclable";
}

/**
 * What must hold of one signer after everything: every number from 0 on is there once, every caller that received a
 * number and did not give it back has it still, and what was reported as used is used.
 */
export async function checkSigner(uri: string, signer: string, told: Told[]): Promise<number> {
  const { rows } = await withClient(uri, (client) =>
    client.query<{ nonce: string; status: string; hold_id: string }>(
      "select nonce, status, hold_id from signer_nonce_allocation where signer = $1 order by nonce",
      [signer],
    ),
  );
  for (const [index, row] of rows.entries())
    if (Number(row.nonce) !== index) throw new Error(`nonce ${index} of ${signer} is missing`);
  const holders = new Map<number, Told>();
  for (const each of told.filter(({ marked }) => marked !== "recyclable")) {
    const rival = holders.get(each.nonce);
    if (rival && rival.holdId !== each.holdId)
      throw new Error(`nonce ${each.nonce} was handed to ${rival.requestId} and ${each.requestId}`);
    holders.set(each.nonce, each);
    const row = rows[each.nonce];
    if (row?.hold_id !== each.holdId)
      throw new Error(`nonce ${each.nonce} of ${each.requestId} belongs to another hold`);
    if (each.marked === "used" && row.status !== "CONSUMED")
      throw new Error(`nonce ${each.nonce} was used and is ${row.status}`);
  }
  return rows.length;
}

/** The same numbers for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
