import { fromErrorBody, JSON_TYPE, ROUTES, type Route, TenureError } from "@tenure/protocol";
import type * as z from "zod";

export interface AdminOptions {
  /** Where an instance is, e.g. `http://127.0.0.1:7070`. */
  url: string;
  token?: string | undefined;
  /** How long one call may take. Above it its outcome is unknown. */
  timeoutMs?: number;
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

/**
 * The HTTP API, typed by the protocol's own table of routes. Every failure is a `TenureError`: the server's, or
 * `DEPENDENCY_DOWN` when none answered. Nothing is sent twice; whoever may call again sees `retryable`.
 */
export function createAdmin({ url, token, timeoutMs = 30_000 }: AdminOptions): Admin {
  return {
    async call(route, input) {
      const { params, query, body, accept = [] } = input as LooseInput;
      const target = new URL(fill(route.path, params) + search(query), url);
      const { ok, status, answer } = await exchange(target, {
        method: route.method,
        signal: AbortSignal.timeout(timeoutMs),
        headers: {
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
          ...(route.method !== "GET" && { "content-type": JSON_TYPE }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      if (!ok && !accept.includes(status)) throw fromErrorBody(answer, status);
      return understand(route, answer, status) as never;
    },
  };
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
    const reason = reasonOf(error);
    throw new TenureError(
      "DEPENDENCY_DOWN",
      { dependency: `the server at ${url.origin}`, reason },
      { cause: error },
    );
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

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as Error & { cause?: Error & { code?: string } };
  return cause?.code ?? cause?.message ?? message;
}
