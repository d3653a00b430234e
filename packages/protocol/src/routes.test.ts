import { describe, expect, test } from "vitest";
import * as z from "zod";
import { CALLER_ROLES, type Role } from "./formats.ts";
import { ListQuery, mayCall, QueryFlag, queryInt } from "./http.ts";
import { ROUTE_LIST, ROUTES } from "./routes.ts";

describe("the table of routes", () => {
  test("has each method and path once", () => {
    const calls = ROUTE_LIST.map(({ method, path }) => `${method} ${path.replace(/:\w+/g, ":")}`);
    expect(new Set(calls).size).toBe(calls.length);
  });

  test.each(ROUTE_LIST)("$method $path describes exactly the parameters in its path", (route) => {
    const inPath = [...route.path.matchAll(/:(\w+)/g)].map((match) => match[1]);
    expect(Object.keys(route.params?.shape ?? {})).toEqual(inPath);
  });

  test("a read has no body, and everything but a 204 has a reply", () => {
    for (const route of ROUTE_LIST) {
      if (route.method === "GET") expect(route.body, route.path).toBeUndefined();
      expect(route.reply === undefined, route.path).toBe(route.statuses?.includes(204) ?? false);
    }
  });

  test.each(ROUTE_LIST)("$method $path can be described as JSON Schema", (route) => {
    for (const schema of [route.params, route.query, route.body].filter((part) => part)) {
      expect(z.toJSONSchema(schema as z.ZodType, { io: "input" })).toBeTypeOf("object");
    }
    if (route.reply) expect(z.toJSONSchema(route.reply)).toBeTypeOf("object");
  });
});

describe("roles", () => {
  const callable = (role: Role) =>
    ROUTE_LIST.filter((route) => route.roles !== "public" && mayCall(route, role));

  test("admin may do everything, and a caller without a token only the public routes", () => {
    expect(ROUTE_LIST.every((route) => mayCall(route, "admin"))).toBe(true);
    expect(ROUTE_LIST.filter((route) => mayCall(route, undefined)).map(({ path }) => path)).toEqual(
      ["/api/v1/enrol", "/api/v1/login", "/health/live", "/health/ready", "/openapi.json"],
    );
  });

  test("viewer reads everything but tokens and the audit, and changes nothing but its own sign-in", () => {
    const reads = ROUTE_LIST.filter(({ method }) => method === "GET");
    const hidden = reads.filter((route) => !mayCall(route, "viewer"));
    expect(hidden.map(({ name }) => name)).toEqual(["listTokens", "readToken", "listAudit"]);
    const writes = callable("viewer").filter(({ method }) => method !== "GET");
    expect(writes.map(({ name }) => name)).toEqual(["logout"]);
  });

  test("node may only read a fence", () => {
    expect(callable("node").map(({ name }) => name)).toEqual(["checkFence"]);
  });

  test("session has its jobs, sessions and turns", () => {
    expect(callable("session").map(({ name }) => name)).toEqual([
      "submitJob",
      "listJobs",
      "readJob",
      "cancelJob",
      "listSessions",
      "readTurn",
    ]);
  });

  test("signer may allocate and mark, but neither resolve nor raise", () => {
    const outside = callable("signer").filter(({ path }) => !path.startsWith("/api/v1/signers"));
    expect(outside).toEqual([]);
    expect(mayCall(ROUTES.allocateNonces, "signer")).toBe(true);
    expect(mayCall(ROUTES.resolveNonce, "signer")).toBe(false);
    expect(mayCall(ROUTES.raiseSigner, "signer")).toBe(false);
  });

  test("peer may only pass on what reaches a lease's owner or a node elsewhere", () => {
    expect(callable("peer").map(({ name }) => name)).toEqual([
      "restartDeployment",
      "readLogs",
      "raiseSigner",
      "allocateNonces",
      "markNonceUsed",
      "markNonceRecyclable",
      "resolveNonce",
    ]);
  });

  test("every role may call something", () => {
    for (const role of CALLER_ROLES) expect(callable(role).length, role).toBeGreaterThan(0);
  });
});

describe("queries", () => {
  test("a list has 50 items by default, and never more than 500", () => {
    expect(ListQuery.parse({})).toEqual({ limit: 50 });
    expect(ListQuery.parse({ limit: "500", cursor: "c", unknown: "x" })).toEqual({
      limit: 500,
      cursor: "c",
    });
    for (const limit of ["0", "501", "-1", "", "1e2", "ten", ["1", "2"]]) {
      expect(ListQuery.safeParse({ limit }).success, String(limit)).toBe(false);
    }
  });

  test("an empty generation is no generation 0", () => {
    const query = ROUTES.checkFence.query;
    expect(query.parse({ generation: "7" })).toEqual({ generation: 7 });
    for (const generation of [undefined, "", " ", "-1", "1.5", "0x1", "9007199254740993"]) {
      expect(query.safeParse({ generation }).success, String(generation)).toBe(false);
    }
  });

  test("a flag is yes, no, or a mistake", () => {
    expect(["", "1", "true"].map((text) => QueryFlag.parse(text))).toEqual([true, true, true]);
    expect(["0", "false"].map((text) => QueryFlag.parse(text))).toEqual([false, false]);
    expect(QueryFlag.safeParse("maybe").success).toBe(false);
    expect(QueryFlag.safeParse("__proto__").success).toBe(false);
  });

  test("a nonce in a path is a whole number the database can hold", () => {
    const { params } = ROUTES.markNonceUsed;
    const signer = `eip155:1:0x${"AB".repeat(20)}`;
    expect(params.parse({ signer, nonce: "9007199254740991" })).toEqual({
      signer: signer.toLowerCase(),
      nonce: 9007199254740991,
    });
    for (const nonce of ["9007199254740992", "-1", "1.0", "", "99999999999999999999"]) {
      expect(params.safeParse({ signer, nonce }).success, nonce).toBe(false);
    }
  });

  test("a rollback needs no body", () => {
    expect(ROUTES.rollbackDeployment.body.parse(undefined)).toEqual({});
    expect(queryInt(z.int()).parse(3)).toBe(3);
  });
});
