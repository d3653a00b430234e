import {
  fromErrorBody,
  JSON_TYPE,
  LIST_LIMIT_MAX,
  type List,
  ROUTES,
  type Route,
  TenureError,
} from "@tenure/protocol";
import type * as z from "zod";
import { openFetch } from "#tls";
import type { Fetch, TlsFiles } from "../connection/tls.ts";
import { type Attempt, createServers, neverSent, noAnswer } from "./servers.ts";

export interface AdminOptions {
  /** URL of an instance, e.g. `http://127.0.0.1:7070`, or several, as an array or separated by commas. */
  url: string | readonly string[];
  token?: string | undefined;
  /** Timeout of one call over all servers. After it the outcome is unknown. */
  timeoutMs?: number;
  /** Limits calls to this tenant, for a token of all tenants. */
  tenant?: string | undefined;
  /** For `https` with a private CA or with client certificates. */
  tls?: TlsFiles | undefined;
}

type Given<R extends Route, Name extends "params" | "query" | "body"> =
  R extends Record<Name, z.ZodType> ? Record<Name, z.input<R[Name]>> : unknown;

/** The input of a call, typed by its route. */
export type CallInput<R extends Route> = Given<R, "params"> &
  Given<R, "body"> &
  Partial<
    Record<"query", R extends { query: z.ZodType } ? Partial<z.input<R["query"]>> : never>
  > & {
    /** Statuses that are returned and not thrown, e.g. 503 of `healthReady`. */
    accept?: readonly number[];
  };

export type CallReply<R extends Route> = R extends { reply: z.ZodType }
  ? z.output<R["reply"]>
  : undefined;

export interface Admin {
  call<const R extends Route>(route: R, input: CallInput<R>): Promise<CallReply<R>>;
}

/** How long a server may take before the next one is tried, in addition to the `wait_ms` of the call. */
const TRY_LIMIT_MS = 5_000;

/**
 * A client of the HTTP API, typed by the route table of the protocol. Every failure is a `TenureError`: the server's own, or
 * `DEPENDENCY_DOWN` when none answered.
 *
 * With several URLs a call without an answer goes to the next server. Reads and idempotent writes (`once` in the table)
 * are also sent again after an unknown outcome; other writes only when no connection was made. With one URL
 * nothing is sent twice.
 */
export function createAdmin(options: AdminOptions): Admin {
  const { url, token, timeoutMs = 30_000, tenant } = options;
  const servers = createServers(url);
  const fetchWith = openFetch(options.tls);
  return {
    async call(route, input) {
      const { params, query, body, accept = [] } = input as LooseInput;
      const path = fill(route.path, params) + search({ ...query, tenant: query?.tenant ?? tenant });
      const isOnce = takesEffectOnce(route, body);
      const deadlineMs = performance.now() + timeoutMs;
      const tryLimitMs = TRY_LIMIT_MS + (Number(query?.wait_ms) || 0);
      const attempt = async ({ url, last }: Attempt) => {
        const leftMs = Math.max(1, deadlineMs - performance.now());
        const limitMs = isOnce && !last ? Math.min(leftMs, tryLimitMs) : leftMs;
        const { ok, status, answer } = await exchange(fetchWith, new URL(path, url), {
          method: route.method,
          signal: AbortSignal.timeout(Math.ceil(limitMs)),
          headers: {
            ...(token !== undefined && { authorization: `Bearer ${token}` }),
            ...(route.method !== "GET" && { "content-type": JSON_TYPE }),
          },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        });
        if (!ok && !accept.includes(status)) throw fromErrorBody(answer, status);
        return parseReply(route, answer, status) as never;
      };
      return servers.use(attempt, (error) => isOnce || neverSent(error));
    },
  };
}

/** Reads every item of a list, page by page. */
export async function allPages<Item>(
  read: (page: { limit: number; cursor: string | undefined }) => Promise<List<Item>>,
): Promise<Item[]> {
  const all: Item[] = [];
  let cursor: string | undefined;
  do {
    const { items, next_cursor } = await read({ limit: LIST_LIMIT_MAX, cursor });
    all.push(...items);
    cursor = next_cursor ?? undefined;
  } while (cursor !== undefined);
  return all;
}

function takesEffectOnce({ method, once }: Route, body: unknown): boolean {
  if (method === "GET") return true;
  return once !== undefined && Boolean((body as Record<string, unknown> | undefined)?.[once]);
}

export { ROUTES };

interface LooseInput {
  params?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
  accept?: readonly number[];
}

interface Exchange {
  ok: boolean;
  status: number;
  answer: unknown;
}

/** Sends the request and reads the whole answer: the connection may break in the middle of a body too. */
async function exchange(fetchWith: Fetch, url: URL, init: RequestInit): Promise<Exchange> {
  try {
    const response = await fetchWith(url, init);
    return { ok: response.ok, status: response.status, answer: await read(response) };
  } catch (error) {
    throw noAnswer(url, error);
  }
}

async function read(response: Response): Promise<unknown> {
  const text = await response.text();
  if (!response.headers.get("content-type")?.startsWith(JSON_TYPE)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The server at that address may be another program, or a proxy with a page of its own. */
function parseReply({ reply, method, path }: Route, answer: unknown, status: number): unknown {
  const parsed = reply?.safeParse(answer);
  if (!parsed || parsed.success) return parsed?.data;
  const reason = `unexpected answer (${status}) to ${method} ${path}; is this a Tenure server?`;
  throw new TenureError("INTERNAL", { reason }, { cause: parsed.error });
}

/** Fills the parameters of `/nodes/:id`, encoded so that a value cannot add a path segment. */
function fill(path: string, params: Record<string, unknown> = {}): string {
  return path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(String(params[name])));
}

function search(query: Record<string, unknown> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(
    given.map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();
  return text && `?${text}`;
}
