import type { Role } from "@tenure/protocol";
import { expect, test } from "vitest";
import { OPERATOR, type Principal } from "../access/principal.ts";
import { requireAllTenants, scopeOf, tenantToWrite } from "./scope.ts";

const caller = (role: Role, tenant: string, more: Partial<Principal> = {}): Principal => ({
  ...{ name: `${tenant}-${role}`, role, tenant },
  ...more,
});
const blue = caller("admin", "blue");
const all = caller("admin", "*", { operates: true });

test.each([
  [blue, {}, ["blue"], false],
  [blue, { tenant: "blue" }, ["blue"], false],
  [all, {}, ["*"], true],
  // As an admin of that tenant would see it.
  [all, { tenant: "blue" }, ["blue"], false],
  [caller("node", "blue"), {}, ["blue"], false],
  [caller("node", "blue", { tenants: ["red", "green"] }), {}, ["red", "green"], false],
  [caller("peer", "default"), {}, ["*"], false],
])("%j with %j sees %j", (principal, query, tenants, operates) => {
  expect(scopeOf(principal, query)).toEqual({ tenants, operates });
});

test.each([
  [blue, { tenant: "red" }, "FORBIDDEN"],
  [blue, { tenant: "*" }, "INVALID_REQUEST"],
  [blue, { tenant: ["blue", "red"] }, "INVALID_REQUEST"],
  [all, { tenant: "no tenant" }, "INVALID_REQUEST"],
  [caller("node", "blue", { tenants: ["red", "green"] }), { tenant: "blue" }, "FORBIDDEN"],
])("%j with %j is refused as %s", (principal, query, code) => {
  expect(() => scopeOf(principal, query)).toThrow(expect.objectContaining({ code }));
});

test("a new object belongs to the caller's tenant, or to the one that a caller of all tenants names", () => {
  expect(tenantToWrite(scopeOf(blue, {}))).toBe("blue");
  expect(tenantToWrite(scopeOf(all, {}), "red")).toBe("red");
  expect(tenantToWrite(scopeOf(all, { tenant: "red" }))).toBe("red");
  expect(() => tenantToWrite(scopeOf(all, {}))).toThrow("tenant: required");
  expect(() => tenantToWrite(scopeOf(blue, {}), "red")).toThrow("tenant blue only");
});

test("without tokens the caller works in default, and may name any tenant", () => {
  expect(scopeOf(OPERATOR, {})).toEqual({ tenants: ["default"], operates: true });
  expect(scopeOf(OPERATOR, { tenant: "blue" })).toEqual({ tenants: ["blue"], operates: false });
  expect(() => requireAllTenants(OPERATOR, "deployment")).not.toThrow();
  expect(() => requireAllTenants(blue, "deployment")).toThrow('tenant = "*"');
});
