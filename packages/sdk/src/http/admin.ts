import { fromErrorBody, JSON_TYPE, ROUTES, type Route, TenureError } from "@tenure/protocol";
import type * as z from "zod";
import { type Attempt, createServers, neverSent, noAnswer } from "./servers.ts";

export interface AdminOptions {
  /** Where an instance is, e.g. `http://127.0.0.1:7070`; or several, also in one text with commas between them. */
  url: string | readonly string[];
  token?: string | undefined;
  /** How long one call may take, all servers together. Above it its outcome is unknown. */
  timeoutMs?: number;
  /** With a token of all tenants: calls are about this one only. */
  tenant?: string | undefined;
}

type Given<R extends Route, Name extends "params" | "query" | "body"> =
  R extends Record<Name, z.ZodType> ? Record<Name, z.input<R[Name]>> : unknown;

/** What a call must be given, by what its route asks for. A query whose fields are all optional may be left out. */
export type CallInput<R extends Route> = Given<R, "params"> &
  Given<R, "body"> &
  Partial<
    Record<"query", R extends { query: z.ZodType } ? Partial<z.input<R["query"]>> : never>
  > & {
    /** Statuses to take as an answer besides success, e.g. 503 of `healthReady`. */
    accept?: readonly number[];
  };

export type CallReply<R extends Route> = R extends { reply: z.ZodType }
  ? z.output<R["reply"]>
  : undefined;

export interface Admin {
  call<const R extends Route>(route: R, input: CallInput<R>): Promise<CallReply<R>>;
}

/** How long a server may take before the next one is tried, besides what the call itself asks it to wait. */
const TRY_LIMIT_MS = 5_000;

/**
 * The HTTP API, typed by the protocol's own table of routes. Every failure is a `TenureError`: the server's, or
 * `DEPENDENCY_DOWN` when none answered.
 *
 * With several URLs a call that one server did not answer goes to the next. A read, and a write that the server
 * does once however often it arrives (`once` in the table), is sent again after an unknown outcome too; any other
 * write only when no connection was made. With one URL nothing is sent twice.
 */
export function createAdmin({ url, token, timeoutMs = 30_000, tenant }: AdminOptions): Admin {
  const servers = createServers(url);
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
        const { ok, status, answer } = await exchange(new URL(path, url), {
          method: route.method,
          signal: AbortSignal.timeout(Math.ceil(limitMs)),
          headers: {
            ...(token !== undefined && { authorization: `Bearer ${token}` }),
            ...(route.method !== "GET" && { "content-type": JSON_TYPE }),
          },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        });
        if (!ok && !accept.includes(status)) throw fromErrorBody(answer, status);
        return understand(route, answer, status) as never;
      };
      return servers.use(attempt, (error) => isOnce || neverSent(error));
    },
  };
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

/** The request and the whole answer: a connection may break, or time run out, in the middle of a body too. */
async function exchange(url: URL, init: RequestInit): Promise<Exchange> {
  try {
    const response = await fetch(url, init);
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

/** Whoever answers at that address may be another program, or a proxy with a page of its own. */
function understand({ reply, method, path }: Route, answer: unknown, status: number): unknown {
  const parsed = reply?.safeParse(answer);
  if (!parsed || parsed.success) return parsed?.data;
  const reason = `the answer (${status}) to ${method} ${path} is not one that Tenure gives`;
  throw new TenureError("INTERNAL", { reason }, { cause: parsed.error });
}

/** `/nodes/:id` with its names filled in; a value can never add a path of its own. */
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
