import { describe, expect, test } from "vitest";
import { tokenSha256 } from "../config.ts";
import { bearerOf, createAuthenticator, type TokenRule } from "./auth.ts";

const viewer: TokenRule = {
  name: "dashboards",
  role: "viewer",
  tenant: "blue",
  sha256: tokenSha256("look"),
};
const admin: TokenRule = {
  name: "operators",
  role: "admin",
  tenant: "default",
  sha256: tokenSha256("rule"),
};

describe("with tokens", () => {
  const authenticator = createAuthenticator([viewer, admin]);

  test("a secret is known by name, role and tenant", () => {
    expect(authenticator.open).toBe(false);
    expect(authenticator.identify("look")).toMatchObject({
      name: "dashboards",
      role: "viewer",
      tenant: "blue",
    });
    expect(authenticator.identify("rule")).toMatchObject({ name: "operators", role: "admin" });
  });

  test.each([
    undefined,
    "",
    "Look",
    "look ",
    "loo",
    tokenSha256("look"),
  ])("%j identifies no principal", (secret) => {
    expect(authenticator.identify(secret)).toBeUndefined();
  });
});

describe("the right to act on what all tenants share", () => {
  const blueAdmin: TokenRule = { ...admin, tenant: "blue", sha256: tokenSha256("blue") };
  const allAdmin: TokenRule = { ...admin, tenant: "*", sha256: tokenSha256("all") };
  const peer: TokenRule = { ...admin, role: "peer", sha256: tokenSha256("peer") };

  test("every admin has it while the tokens name one tenant", () => {
    const authenticator = createAuthenticator([blueAdmin, allAdmin, peer]);
    expect(authenticator.identify("blue")).toMatchObject({ operates: true });
  });

  test("only a token of all tenants has it when they name several, at the console too", () => {
    const authenticator = createAuthenticator([blueAdmin, admin, allAdmin]);
    const isOperator = ({ name, sha256 }: TokenRule) =>
      authenticator.configured({ name, sha256 })?.operates;
    expect(["blue", "rule", "all"].map((one) => authenticator.identify(one)?.operates)).toEqual([
      ...[false, false, true],
    ]);
    expect([blueAdmin, admin, allAdmin].map(isOperator)).toEqual([false, false, true]);
  });
});

test("the peer token identifies a peer where tokens are needed", () => {
  expect(createAuthenticator([admin], "between us").identify("between us")).toMatchObject({
    role: "peer",
  });
  expect(createAuthenticator([admin]).identify("")).toBeUndefined();
  const open = createAuthenticator([], "between us");
  expect(open.open).toBe(true);
  expect(open.identify(undefined)).toMatchObject({ role: "admin" });
});

test("without tokens every caller is the operator of this machine", () => {
  const authenticator = createAuthenticator([]);
  expect(authenticator.open).toBe(true);
  expect(authenticator.identify(undefined)).toMatchObject({ role: "admin", tenant: "default" });
});

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
