import { ErrorBody, ROUTES, type Role, type Route, type RouteName, Tenant } from "@tenure/protocol";
import * as z from "zod";
import { VERSION } from "../../version.ts";
import { type Served, serve } from "../route.ts";

/** `/openapi.json`, generated from the routes that this server serves. */
export function describeApi(routes: readonly Route[]): Served {
  let document: Record<string, unknown> | undefined;
  return serve(ROUTES.readOpenapi, async () => {
    document ??= documentOf([...routes, ROUTES.readOpenapi]);
    return document;
  });
}

/** The roles whose tokens may be of all tenants. */
const ANY_TENANT_ROLES: readonly Role[] = ["admin", "viewer"];

function documentOf(routes: readonly Route[]): Record<string, unknown> {
  return {
    openapi: "3.1.0",
    info: {
      title: "Tenure",
      version: VERSION,
      description: "One owner at a time for every deployment, job and nonce.",
      license: { name: "Apache-2.0" },
    },
    // Relative to the address of this document: an instance does not know the names of its proxies.
    servers: [{ url: "/" }],
    components: {
      securitySchemes: { bearer: { type: "http", scheme: "bearer" } },
      schemas: { Error: schemaOf(ErrorBody) },
    },
    paths: pathsOf(routes),
  };
}

function pathsOf(routes: readonly Route[]): Record<string, Record<string, unknown>> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route) };
  }
  return paths;
}

function operationOf(route: Route): Record<string, unknown> {
  return {
    operationId: NAMES.get(route),
    summary: route.summary,
    // The roles that may call it; the bearer scheme has no field for them.
    "x-roles": route.roles,
    security: route.roles === "public" ? [] : [{ bearer: [] }],
    parameters: [...parametersOf(route.params, "path"), ...parametersOf(queryOf(route), "query")],
    ...(route.body && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: schemaOf(route.body) } },
      },
    }),
    responses: responsesOf(route),
  };
}

/** With `tenant`, which every route takes that a token of all tenants may call: see `scopeOf`. */
function queryOf({ roles, query }: Route): z.ZodObject | undefined {
  if (roles === "public" || !ANY_TENANT_ROLES.some((role) => roles.includes(role))) return query;
  return z.object({ ...query?.shape, tenant: Tenant.optional() });
}

const NAMES: ReadonlyMap<Route, RouteName> = new Map(
  (Object.entries(ROUTES) as [RouteName, Route][]).map(([name, route]) => [route, name]),
);

/** The errors a caller of this route must expect, besides `default`. */
function refusalsOf(route: Route): Record<number, string> {
  const { roles, params, body } = route;
  return {
    ...((params || queryOf(route) || body) && { 400: "the request is not valid" }),
    ...(roles !== "public" && { 401: "no valid token" }),
    403: "not allowed: the role, the Host or the Origin",
    ...(params && { 404: "it does not exist" }),
  };
}

function responsesOf(route: Route): Record<string, unknown> {
  const { reply, statuses = [200], produces = ["application/json"] } = route;
  const content =
    reply &&
    Object.fromEntries(produces.map((type) => [type, { schema: schemaOf(reply, "output") }]));
  const answers = statuses.map((status) => [
    status,
    { description: "answer", ...(content && { content }) },
  ]);
  const error = (description: string) => ({
    description,
    content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
  });
  return {
    ...Object.fromEntries(answers),
    ...Object.fromEntries(
      Object.entries(refusalsOf(route)).map(([status, text]) => [status, error(text)]),
    ),
    default: error("refused or failed"),
  };
}

function parametersOf(schema: z.ZodObject | undefined, place: "path" | "query"): unknown[] {
  if (!schema) return [];
  const { properties = {}, required = [] } = schemaOf(schema);
  return Object.entries(properties).map(([name, property]) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    schema: property,
  }));
}

interface JsonSchema {
  properties?: Record<string, unknown>;
  required?: string[];
}

function schemaOf(schema: z.ZodType, io: "input" | "output" = "input"): JsonSchema {
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    // For a record with enum keys zod lists the keys as required and describes none of them.
    override({ jsonSchema }) {
      const { required, properties, additionalProperties } = jsonSchema;
      if (!required || properties || !additionalProperties) return;
      jsonSchema.properties = Object.fromEntries(
        required.map((name) => [name, additionalProperties]),
      );
    },
  });
  return rest as JsonSchema;
}
