import { isTenureError, TenureError } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import type { AuthToken } from "../config.ts";
import { tokenSha256 } from "../config.ts";
import { createAuthenticator, type TokenSource } from "./authenticator.ts";
import { createConfigTokens } from "./config-tokens.ts";
import { KnownTokens } from "./known-tokens.ts";

const viewer: AuthToken = {
  name: "dashboards",
  role: "viewer",
  tenant: "blue",
  sha256: tokenSha256("look"),
};
const admin: AuthToken = {
  name: "operators",
  role: "admin",
  tenant: "default",
  sha256: tokenSha256("rule"),
};

function sourceOf(tokens: readonly AuthToken[], peerToken = "") {
  const known = new KnownTokens([() => tokens]);
  const principalOf = (rule: AuthToken) => ({ ...rule, operates: known.operates(rule) });
  return createConfigTokens({ tokens, peerToken, principalOf });
}

const createFor = (tokens: readonly AuthToken[], peerToken = "") =>
  createAuthenticator({ open: tokens.length === 0, sources: [sourceOf(tokens, peerToken)] });

describe("with tokens", () => {
  const authenticator = createFor([viewer, admin]);

  test("a secret is known by name, role and tenant", async () => {
    expect(authenticator.open).toBe(false);
    expect(await authenticator.identify("look")).toMatchObject({
      name: "dashboards",
      role: "viewer",
      tenant: "blue",
    });
    expect(await authenticator.identify("rule")).toMatchObject({
      name: "operators",
      role: "admin",
    });
  });

  test.each([
    undefined,
    "",
    "Look",
    "look ",
    "loo",
    tokenSha256("look"),
  ])("%j identifies no principal", async (secret) => {
    expect(await authenticator.identify(secret)).toBeUndefined();
  });
});

describe("the right to act on what all tenants share", () => {
  const blueAdmin: AuthToken = { ...admin, tenant: "blue", sha256: tokenSha256("blue") };
  const allAdmin: AuthToken = { ...admin, tenant: "*", sha256: tokenSha256("all") };
  const peer: AuthToken = { ...admin, role: "peer", sha256: tokenSha256("peer") };

  test("every admin has it while the tokens name one tenant", async () => {
    const authenticator = createFor([blueAdmin, allAdmin, peer]);
    expect(await authenticator.identify("blue")).toMatchObject({ operates: true });
  });

  test("only a token of all tenants has it when they name several, at the console too", async () => {
    const authenticator = createFor([blueAdmin, admin, allAdmin]);
    const presented = ["blue", "rule", "all"].map((one) => authenticator.identify(one));
    const signedIn = [blueAdmin, admin, allAdmin].map(authenticator.configured);
    for (const found of [presented, signedIn])
      expect((await Promise.all(found)).map((one) => one?.operates)).toEqual([false, false, true]);
  });
});

test("the peer token identifies a peer where tokens are needed", async () => {
  expect(await createFor([admin], "between us").identify("between us")).toMatchObject({
    role: "peer",
  });
  expect(await createFor([admin]).identify("")).toBeUndefined();
  const open = createFor([], "between us");
  expect(open.open).toBe(true);
  expect(await open.identify(undefined)).toMatchObject({ role: "admin" });
});

test("without tokens every caller is the operator of this machine", async () => {
  const authenticator = createFor([]);
  expect(authenticator.open).toBe(true);
  expect(await authenticator.identify(undefined)).toMatchObject({
    role: "admin",
    tenant: "default",
  });
});

describe("several sources", () => {
  const of = (find: TokenSource["find"]): TokenSource => ({ find });
  const down = of(async () => {
    throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres" });
  });

  test("the first source that knows the secret decides", async () => {
    const { sha256: _, ...second } = viewer;
    const authenticator = createAuthenticator({
      open: false,
      sources: [sourceOf([admin]), of(async () => second), down],
    });
    expect(await authenticator.identify("rule")).toMatchObject({ name: "operators" });
    expect(await authenticator.identify("child")).toMatchObject({ name: "dashboards" });
    expect(await authenticator.configured(viewer)).toBeUndefined();
  });

  test("a secret that a source cannot look up is not refused as unknown", async () => {
    const sources = [sourceOf([admin]), down];
    const authenticator = createAuthenticator({ open: false, sources });
    expect(await authenticator.identify("rule")).toMatchObject({ name: "operators" });
    const error = await authenticator.identify("child").catch((reason: unknown) => reason);
    expect(isTenureError(error, "DEPENDENCY_DOWN")).toBe(true);
  });
});
