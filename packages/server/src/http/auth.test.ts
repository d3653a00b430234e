import { expect, test } from "vitest";
import { bearerOf } from "./auth.ts";

test.each([
  ["Bearer s3cret", "s3cret"],
  ["bearer s3cret", "s3cret"],
  ["Bearer a:b/c=", "a:b/c="],
  ["Bearer  s3cret", undefined],
  ["Bearer s3cret more", undefined],
  ["Bearer ", undefined],
  ["Basic s3cret", undefined],
  ["s3cret", undefined],
  ["", undefined],
  [undefined, undefined],
])("the header %j carries %j", (header, secret) => {
  expect(bearerOf(header)).toBe(secret);
});
