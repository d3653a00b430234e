import type { TestDatabase } from "@tenure/testing/stores/database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Answer, openApp, openAppDatabase, type TestApp } from "../../../testing/apps.ts";

let database: TestDatabase;
let app: TestApp;
beforeAll(async () => {
  database = await openAppDatabase();
  app = await openApp(database.uri, {
    TENURE_TOKENS: "admin:rule-of-the-fleet,viewer:look-at-the-fleet",
  });
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});

const ask = (method: string, path: string, body?: object, token = "rule-of-the-fleet") =>
  app.ask(method, `/api/v1/deployments${path}`, body, { authorization: `Bearer ${token}` });

test("former specifications are listed, newest first, without secrets for a viewer", async () => {
  await ask("POST", "", { name: "web", command: "run", env: { KEY: "secret" } });
  for (const package_version of ["1.0.0", "2.0.0", "3.0.0"]) {
    await ask("PATCH", "/web", { package_name: "web", package_version });
  }
  const { body } = await ask("GET", "/web/revisions");
  const versions = body.items.map((item: Answer) => [item.revision, item.package_version]);
  expect(versions).toEqual([
    [3, "2.0.0"],
    [2, "1.0.0"],
    [1, ""],
  ]);
  expect(body.items[0]).toMatchObject({ type: "deployment", env: { KEY: "secret" } });
  const seen = await ask("GET", "/web/revisions", undefined, "look-at-the-fleet");
  expect(seen.body.items[0].env).toEqual({ KEY: "***" });
});

test("revisions are paged", async () => {
  const first = await ask("GET", "/web/revisions?limit=2");
  const second = await ask("GET", `/web/revisions?limit=2&cursor=${first.body.next_cursor}`);
  const numbers = [first, second].flatMap(({ body }) =>
    body.items.map((item: Answer) => item.revision),
  );
  expect(numbers).toEqual([3, 2, 1]);
  expect(second.body.next_cursor).toBeNull();
  expect((await ask("GET", "/web/revisions?cursor=x")).status).toBe(400);
  expect((await ask("GET", "/nothing/revisions")).status).toBe(404);
});

test("a revision beyond the range of the column is a bad request", async () => {
  const tooLarge = 2 ** 31;
  const patched = await ask("PATCH", "/web", { command: "other", if_revision: tooLarge });
  expect(patched).toMatchObject({ status: 400, body: { error: { code: "INVALID_REQUEST" } } });
  const rolled = await ask("POST", "/web/rollback", { revision: tooLarge });
  expect(rolled).toMatchObject({ status: 400, body: { error: { code: "INVALID_REQUEST" } } });
});
