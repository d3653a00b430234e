import { expect, test } from "vitest";
import { withExplicitSslMode } from "./postgres-uri.ts";

const uri = (query: string) => `postgres://u:p@db/tenure${query}`;

test.each(["prefer", "require", "verify-ca"])("sslmode=%s is written as verify-full", (mode) => {
  expect(withExplicitSslMode(uri(`?a=1&sslmode=${mode}&sslrootcert=/ca.pem`))).toEqual({
    uri: uri("?a=1&sslmode=verify-full&sslrootcert=/ca.pem"),
    replaced: mode,
  });
});

test.each([
  "",
  "?sslmode=verify-full",
  "?sslmode=no-verify",
  "?sslmode=disable",
  "?sslmode=require&uselibpqcompat=true",
  "?application_name=sslmode=require",
])("a URI with %j stays as it is", (query) => {
  expect(withExplicitSslMode(uri(query))).toEqual({ uri: uri(query), replaced: undefined });
});
