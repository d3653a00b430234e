import { ROUTES } from "@tenure/protocol";
import { expect, test } from "vitest";
import { describeApi } from "./openapi.ts";

interface Operation {
  operationId: string;
  "x-roles": string | string[];
  parameters: { name: string; in: string }[];
  responses: Record<string, unknown>;
}

const document = (await describeApi(Object.values(ROUTES)).answer(
  {} as never,
  {} as never,
  {} as never,
)) as { servers: { url: string }[]; paths: Record<string, Record<string, Operation>> };
const operations = Object.values(document.paths).flatMap((path) => Object.values(path));

test("every operation has the name of its route, once", () => {
  expect(operations.map(({ operationId }) => operationId).toSorted()).toEqual(
    Object.keys(ROUTES).toSorted(),
  );
});

test("the document names the server, and every operation its errors", () => {
  expect(document.servers).toEqual([{ url: "/" }]);
  for (const { operationId, responses } of operations)
    expect(Object.keys(responses), operationId).toContainEqual(expect.stringMatching(/^4\d\d$/));
});

test("no schema requires a property that it does not describe", () => {
  const missing: string[] = [];
  const walk = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null) return;
    const { required, properties } = value as { required?: unknown; properties?: object };
    if (Array.isArray(required))
      missing.push(
        ...required
          .filter((name) => !properties || !(name in properties))
          .map((name) => `${path}.${name}`),
      );
    for (const [name, inner] of Object.entries(value)) walk(inner, `${path}/${name}`);
  };
  walk(document, "");
  expect(missing).toEqual([]);
});

test("every route that an admin may call takes a tenant, once", () => {
  const tenants = ({ parameters }: Operation) =>
    parameters.filter(({ name }) => name === "tenant").length;
  for (const operation of operations)
    expect([operation.operationId, tenants(operation)]).toEqual([
      operation.operationId,
      operation["x-roles"].includes("admin") ? 1 : 0,
    ]);
});
