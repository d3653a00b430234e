import { type IncomingHttpHeaders, request as requestPlain } from "node:http";
import { request as requestSecure } from "node:https";
import { JSON_TYPE, mayCall, ROLES, ROUTE_LIST, type Role, type Route } from "@tenure/protocol";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

// Who may call what, asked of a running server for every route that it says it has.

const secretOf = (role: Role): string => `the-secret-of-${role}`;
const TENURE_TOKENS = ROLES.map((role) => `${role}:${secretOf(role)}`).join(",");

let database: TestDatabase;
let guarded: RunningServer;
let open: RunningServer;
let routes: ServedRoute[];
beforeAll(async () => {
  database = await createDatabase(stores().postgresAdminUri);
  const env = storeSettings({ postgresUri: database.uri });
  guarded = await startServer({ env: { ...env, TENURE_TOKENS } });
  open = await startServer({ env });
  routes = await servedRoutes(guarded);
});
afterAll(async () => {
  await Promise.all([guarded?.stop(), open?.stop()]);
  await database?.drop();
});

describe("the description of the API", () => {
  test("names routes, and each has the roles of the protocol's table", () => {
    expect(routes.length).toBeGreaterThan(4);
    const differing = routes.filter((route) => {
      const known = ROUTE_LIST.find(isSame(route));
      return JSON.stringify(known?.roles) !== JSON.stringify(route.roles);
    });
    expect(differing.map(titleOf)).toEqual([]);
  });

  test("hides no route: what it does not name is not found", async () => {
    const hidden = ROUTE_LIST.filter((route) => !routes.some(isSame(route)));
    const found = await titlesWhere(hidden, async (route) => {
      const answer = await ask(guarded, route, as("admin"));
      return answer.status !== 404 || answer.code !== "NOT_FOUND";
    });
    expect(found).toEqual([]);
  });
});

describe.each([
  ["with tokens", () => guarded],
  ["without tokens", () => open],
])("a server %s", (_, server) => {
  test.each([
    "evil.example.com",
    "evil.example.com:80",
    "127.0.0.1.evil.example.com",
  ])("refuses every request to the name %s", async (host) => {
    const headers = { ...as("admin"), host };
    expect(await titlesWhere(routes, isNot(403, "FORBIDDEN", headers, server()))).toEqual([]);
  });

  test.each([
    "http://evil.example.com",
    "null",
    "http://127.0.0.1",
  ])("refuses every request of a page of %s", async (origin) => {
    const headers = { ...as("admin"), origin };
    expect(await titlesWhere(routes, isNot(403, "FORBIDDEN", headers, server()))).toEqual([]);
  });

  test("the server lets its own pages in", async () => {
    const headers = { ...as("admin"), origin: server().url };
    expect(await titlesWhere(routes, isRefused(headers, server()))).toEqual([]);
  });

  test("the server refuses changes by requests that are not JSON", async () => {
    const writes = [...routes, UNKNOWN_WRITE].filter(({ method }) => method !== "GET");
    for (const type of [undefined, "text/plain", "application/x-www-form-urlencoded", "json"]) {
      // A bearer token stands for a missing content type: no page of another site can send one.
      const headers = { ...(type && as("admin")), "content-type": type };
      const accepted = await titlesWhere(writes, isNot(400, "INVALID_REQUEST", headers, server()));
      expect(accepted, `content-type: ${type}`).toEqual([]);
    }
    // Another reason would do for the refusals above; this shows that it was the content type.
    expect(await ask(server(), UNKNOWN_WRITE, as("admin"))).toMatchObject({ status: 404 });
  });
});

describe("without a token", () => {
  const guardedRoutes = () => routes.filter(({ roles }) => roles !== "public");

  test.each([
    ["none", {}],
    ["an unknown one", { authorization: "Bearer nobody" }],
    ["one in another scheme", { authorization: `Basic ${secretOf("admin")}` }],
    ["the hash instead of the secret", { authorization: "Bearer sha256" }],
  ])("%s: only the public routes answer", async (_, headers) => {
    const refused = await titlesWhere(routes, isRefused(headers, guarded));
    expect(refused).toEqual(guardedRoutes().map(titleOf));
    const other = await titlesWhere(
      guardedRoutes(),
      isNot(401, "UNAUTHENTICATED", headers, guarded),
    );
    expect(other).toEqual([]);
  });

  test("the answer says which scheme is wanted", async () => {
    const answer = await ask(guarded, guardedRoutes()[0]!, {});
    expect(answer.headers["www-authenticate"]).toBe("Bearer");
  });

  test("a server that has none configured takes everybody on this machine for its operator", async () => {
    const forAdmins = routes.filter((route) => mayCall(route, "admin"));
    expect(await titlesWhere(forAdmins, isRefused({}, open))).toEqual([]);
  });
});

describe.each(ROLES)("the role %s", (role) => {
  test("may call what the table says, and nothing else", async () => {
    const refused = await titlesWhere(routes, isNotAllowed(role));
    const expected = routes.filter((route) => !mayCall(route, role)).map(titleOf);
    expect(refused).toEqual(expected);
  });
});

interface ServedRoute extends Pick<Route, "method" | "path" | "roles"> {}

interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  /** The error's code, when it is one. */
  code: string | undefined;
}

type Headers = Record<string, string | undefined>;

const UNKNOWN_WRITE: ServedRoute = { method: "POST", path: "/api/v1/no-such", roles: "public" };

const as = (role: Role): Headers => ({
  authorization: `Bearer ${secretOf(role)}`,
  // Instances mark what they pass on to each other.
  ...(role === "peer" && { "x-tenure-forwarded": "i-other" }),
});
const titleOf = ({ method, path }: ServedRoute): string => `${method} ${path}`;
const isSame = (one: ServedRoute) => (other: ServedRoute) => titleOf(one) === titleOf(other);

async function servedRoutes(server: RunningServer): Promise<ServedRoute[]> {
  const { body } = await server.get("/openapi.json");
  const { paths } = body as {
    paths: Record<string, Record<string, { "x-roles": Route["roles"] }>>;
  };
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      method: method.toUpperCase() as Route["method"],
      path: path.replace(/\{(\w+)\}/g, ":$1"),
      roles: operation["x-roles"],
    })),
  );
}

/** One after another: a flood of refusals is another test's matter. */
async function titlesWhere(
  among: readonly ServedRoute[],
  holds: (route: ServedRoute) => Promise<boolean>,
): Promise<string[]> {
  const titles: string[] = [];
  for (const route of among) if (await holds(route)) titles.push(titleOf(route));
  return titles;
}

const isNot =
  (status: number, code: string, headers: Headers, server: RunningServer) =>
  async (route: ServedRoute) => {
    const answer = await ask(server, route, headers);
    return answer.status !== status || answer.code !== code;
  };

/** What a request that was let in then says of its body or its id is not the guard's matter. */
const isRefused = (headers: Headers, server: RunningServer) => async (route: ServedRoute) =>
  [401, 403].includes((await ask(server, route, headers)).status);

const isNotAllowed = (role: Role) => async (route: ServedRoute) => {
  const { status, code } = await ask(guarded, route, as(role));
  if (status !== 403) return false;
  expect(code).toBe("FORBIDDEN");
  return true;
};

/** By hand, since `fetch` decides on `Host` itself; a reply that streams is let go after its head. */
function ask(server: RunningServer, route: ServedRoute, headers: Headers): Promise<Reply> {
  const path = route.path.replace(/:\w+/g, "x");
  const isWrite = route.method !== "GET";
  const given = { ...(isWrite && { "content-type": JSON_TYPE }), ...headers };
  const sent = Object.entries(given).filter(([, value]) => value !== undefined);
  return new Promise((resolve, reject) => {
    const request = server.url.startsWith("https:") ? requestSecure : requestPlain;
    const outgoing = request(
      `${server.url}${path}`,
      // The name in `Host` is wrong on purpose, and is what the client would compare.
      {
        ...{ method: route.method, headers: Object.fromEntries(sent), agent: false },
        rejectUnauthorized: false,
      },
      (response) => {
        const { statusCode: status = 0, headers } = response;
        const chunks: Buffer[] = [];
        const done = () => resolve({ status, headers, code: codeOf(Buffer.concat(chunks)) });
        const isJson = headers["content-type"]?.startsWith(JSON_TYPE);
        if (isJson) response.on("data", (chunk: Buffer) => chunks.push(chunk)).on("end", done);
        else response.destroy().on("close", done);
      },
    );
    outgoing.on("error", reject).end();
  });
}

function codeOf(body: Buffer): string | undefined {
  const { error } = JSON.parse(body.toString() || "{}") as { error?: { code: string } };
  return error?.code;
}
