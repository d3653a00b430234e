import { ErrorBody, ROUTES, type Route } from "@tenure/protocol";
import * as z from "zod";
import { VERSION } from "../version.ts";
import { type Served, serve } from "./route.ts";

/** `/openapi.json`: what this server serves, made from the very table it serves by. */
export function describeApi(routes: readonly Route[]): Served {
  let document: Record<string, unknown> | undefined;
  return serve(ROUTES.readOpenapi, async () => {
    document ??= documentOf([...routes, ROUTES.readOpenapi]);
    return document;
  });
}

function documentOf(routes: readonly Route[]): Record<string, unknown> {
  return {
    openapi: "3.1.0",
    info: {
      title: "Tenure",
      version: VERSION,
      description: "One owner at a time for every deployment, job and nonce.",
      license: { name: "Apache-2.0" },
    },
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
    summary: route.summary,
    // Who may call it, in a form that programs can read; the bearer scheme itself knows no roles.
    "x-roles": route.roles,
    security: route.roles === "public" ? [] : [{ bearer: [] }],
    parameters: [...parametersOf(route.params, "path"), ...parametersOf(route.query, "query")],
    ...(route.body && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: schemaOf(route.body) } },
      },
    }),
    responses: responsesOf(route),
  };
}

function responsesOf({
  reply,
  statuses = [200],
  produces = ["application/json"],
}: Route): Record<string, unknown> {
  const content =
    reply &&
    Object.fromEntries(produces.map((type) => [type, { schema: schemaOf(reply, "output") }]));
  const answers = statuses.map((status) => [
    status,
    { description: "answer", ...(content && { content }) },
  ]);
  const error = { $ref: "#/components/schemas/Error" };
  return {
    ...Object.fromEntries(answers),
    default: {
      description: "refused or failed",
      content: { "application/json": { schema: error } },
    },
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
  const { $schema, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" });
  return rest as JsonSchema;
}
