import * as z from "zod";
import {
  NodeEnrol,
  NodeEnrolled,
  TokenCreate,
  TokenCreated,
  TokenId,
  TokenRotate,
  TokenView,
} from "../access/token.ts";
import { ClientId } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, QueryFlag, type Route } from "../http.ts";

const PATH = `${API_PREFIX}/tokens`;
const tokenParams = z.object({ id: TokenId });

export const TOKEN_ROUTES = {
  listTokens: {
    method: "GET",
    path: PATH,
    roles: ["admin"],
    summary: "List tokens, newest first, without those of the settings.",
    query: ListQuery.extend({ name: ClientId.optional(), live: QueryFlag.optional() }),
    reply: listOf(TokenView),
  },
  createToken: {
    method: "POST",
    path: PATH,
    roles: ["admin"],
    summary: "Create a token; the answer has its secret, once.",
    body: TokenCreate,
    reply: TokenCreated,
  },
  readToken: {
    method: "GET",
    path: `${PATH}/:id`,
    roles: ["admin"],
    summary: "Read one token, without its secret.",
    params: tokenParams,
    reply: TokenView,
  },
  revokeToken: {
    method: "POST",
    path: `${PATH}/:id/revoke`,
    roles: ["admin"],
    summary: "Revoke a token; its open sockets are closed.",
    params: tokenParams,
    reply: TokenView,
  },
  rotateToken: {
    method: "POST",
    path: `${PATH}/:id/rotate`,
    roles: ["admin"],
    summary: "Give a token a new secret; the answer has it, once.",
    params: tokenParams,
    body: TokenRotate,
    reply: TokenCreated,
  },
  enrolNode: {
    method: "POST",
    path: `${API_PREFIX}/enrol`,
    roles: "public",
    summary: "Exchange a join token for the token of one node.",
    body: NodeEnrol,
    once: "token_sha256",
    reply: NodeEnrolled,
  },
} as const satisfies Record<string, Route>;
