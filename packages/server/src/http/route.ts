import { JSON_TYPE, parseRequest, type Route } from "@tenure/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import type * as z from "zod";
import type { Act } from "../audit/actor.ts";
import type { Scope } from "../kernel/scope.ts";
import type { Principal } from "./auth.ts";
import { scopeOf } from "./scope.ts";

type Parsed<Schema> = Schema extends z.ZodType ? z.infer<Schema> : undefined;
type Part<R extends Route, Name extends "params" | "query" | "body"> =
  R extends Record<Name, infer Schema> ? Parsed<Schema> : undefined;

/** A request that was let in and understood. */
export interface Call<R extends Route> {
  principal: Principal;
  /** Whose things this call may see and change. */
  scope: Scope;
  params: Part<R, "params">;
  query: Part<R, "query">;
  body: Part<R, "body">;
  request: FastifyRequest;
  reply: FastifyReply;
  /** Of a request that leaves an audit entry. */
  act: Act | undefined;
}

export type Answer<R extends Route> = R extends { reply: infer Schema }
  ? z.input<Schema & z.ZodType>
  : undefined;

declare module "fastify" {
  interface FastifyContextConfig {
    bodyAsText?: boolean;
    /** Missing where no route of the table matches. */
    route?: Route;
  }
  interface FastifyRequest {
    /** The JSON of the body where `Served.bodyAsText` is set; else empty. */
    bodyText: string;
    /** Who sent the request, as far as the route asks. */
    principal: Principal;
  }
}

/** An answer that is JSON already. Its parts may have come as text, and must not be parsed and written again. */
export class JsonReply {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** One route of the protocol's table and what answers it. */
export interface Served {
  route: Route;
  /**
   * The body is kept in `request.bodyText` too, for a member that travels as text. Such a member may have any keys:
   * `__proto__` is data in it like any other.
   */
  bodyAsText: boolean;
  answer: (
    request: FastifyRequest,
    reply: FastifyReply,
    principal: Principal,
    act?: Act,
  ) => Promise<unknown>;
}

/** Binds a route to its answer: parse, one call, render. What the table does not name does not arrive. */
export function serve<const R extends Route>(
  route: R,
  answer: (call: Call<R>) => Promise<Answer<R> | JsonReply>,
  { bodyAsText = false }: { bodyAsText?: boolean } = {},
): Served {
  return {
    route,
    bodyAsText,
    answer: async (request, reply, principal, act) => {
      const answered = await answer({
        principal,
        scope: scopeOf(principal, route.roles === "public" ? undefined : request.query),
        request,
        reply,
        act,
        params: parsePart(route.params, request.params) as Part<R, "params">,
        query: parsePart(route.query, request.query) as Part<R, "query">,
        body: parsePart(route.body, request.body) as Part<R, "body">,
      });
      if (!(answered instanceof JsonReply)) return answered;
      reply.type(`${JSON_TYPE}; charset=utf-8`);
      return answered.text;
    },
  };
}

const parsePart = (schema: z.ZodType | undefined, value: unknown): unknown =>
  schema && parseRequest(schema, value);
