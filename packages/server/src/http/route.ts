import { JSON_TYPE, parseRequest, type Route } from "@tenure/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import type * as z from "zod";
import { mayForward, type Principal } from "../access/principal.ts";
import type { Act } from "../audit/actor.ts";
import type { Scope } from "../kernel/scope.ts";
import { FORWARDED_HEADER } from "../peers/peer-client.ts";
import { scopeOf } from "./scope.ts";

type Parsed<Schema> = Schema extends z.ZodType ? z.infer<Schema> : undefined;
type Part<R extends Route, Name extends "params" | "query" | "body"> =
  R extends Record<Name, infer Schema> ? Parsed<Schema> : undefined;

/** An authorized and parsed request. */
export interface Call<R extends Route> {
  principal: Principal;
  /** The tenants whose data this call may see and change. */
  scope: Scope;
  params: Part<R, "params">;
  query: Part<R, "query">;
  body: Part<R, "body">;
  request: FastifyRequest;
  reply: FastifyReply;
  /** Of a request that leaves an audit entry. */
  act: Act | undefined;
  /** Another instance forwarded the request: it must be answered here. From other callers the header means nothing. */
  forwarded: boolean;
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
    /** The sender, as far as the route needs a token. */
    principal: Principal;
  }
}

/** An answer that is JSON text already: job payloads and results are passed on unparsed. */
export class JsonReply {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** A route of the protocol's table and its handler. */
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

/** Binds a route to its handler: parse, one call, render. Fields that the route does not declare are dropped. */
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
        forwarded: mayForward(principal) && request.headers[FORWARDED_HEADER] !== undefined,
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
