import * as z from "zod";
import type { Role } from "./formats.ts";

/** The prefix of every route but health, metrics and the description of the API. */
export const API_PREFIX = "/api/v1";

export interface Route {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** In fastify's form: `/api/v1/deployments/:id`. */
  path: string;
  /** Roles that may call it. `"public"` and not an empty list for all callers, because that would look like none. */
  roles: readonly Role[] | "public";
  summary: string;
  params?: z.ZodObject;
  query?: z.ZodObject;
  body?: z.ZodType;
  reply?: z.ZodType;
  /** The field of the body that makes a write idempotent. */
  once?: string;
  /** Statuses with which `reply` is sent; only 200 when left out. */
  statuses?: readonly number[];
  /** Media types of the reply; only JSON when left out. */
  produces?: readonly string[];
}

export const JSON_TYPE = "application/json";
export const SSE_TYPE = "text/event-stream";
export const METRICS_TYPE = "text/plain";

/** `role` is undefined for a caller without a token. */
export function mayCall(route: Pick<Route, "roles">, role: Role | undefined): boolean {
  if (route.roles === "public") return true;
  return role !== undefined && route.roles.includes(role);
}

const LIST_LIMIT_DEFAULT = 50;
export const LIST_LIMIT_MAX = 500;

/** A number in a query. Only plain digits are parsed: `Number("")` would be 0, a valid generation. */
export function queryInt<T extends z.ZodType>(schema: T) {
  return z.preprocess(
    (value) => (typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : value),
    schema,
  );
}

const FLAGS: ReadonlyMap<unknown, boolean> = new Map([
  ["", true],
  ["1", true],
  ["true", true],
  ["0", false],
  ["false", false],
]);

/** `?follow`, `?follow=1` and `?follow=true` are yes, `0` and `false` no. */
export const QueryFlag = z.preprocess((value) => FLAGS.get(value) ?? value, z.boolean());

/** An opaque text of the server, sent back unchanged. */
const Cursor = z
  .string()
  .min(1)
  .max(1_024)
  // Postgres accepts no NUL in a text.
  .refine((text) => !text.includes("\0"), "invalid");

export const ListQuery = z.object({
  limit: queryInt(z.int().min(1).max(LIST_LIMIT_MAX).default(LIST_LIMIT_DEFAULT)),
  cursor: Cursor.optional(),
});
export type ListQuery = z.infer<typeof ListQuery>;

/** Every list has this envelope; `next_cursor` is null on the last page. */
export function listOf<T extends z.ZodType>(item: T) {
  return z.object({ items: z.array(item), next_cursor: Cursor.nullable() });
}

export interface List<T> {
  items: T[];
  next_cursor: string | null;
}
