import type { FastifyReply, FastifyRequest } from "fastify";
import { expect, test } from "vitest";
import { createConfigTokens } from "../../access/config-tokens.ts";
import { KnownTokens } from "../../access/known-tokens.ts";
import { ANONYMOUS, type Principal } from "../../access/principal.ts";
import type { AuthToken } from "../../config.ts";
import { clusterRoutes } from "./cluster.ts";
import { healthRoutes } from "./health.ts";

// The reasons of a failure are texts of drivers, with hosts, ports and users.

const REASON = "connect ECONNREFUSED 10.1.2.3:5432";
const source = {
  instanceId: "one",
  phase2: false,
  health: async () => ({
    status: "not_ready" as const,
    dependencies: [{ name: "postgres", kind: "postgres" as const, ok: false, reason: REASON }],
  }),
  instances: async () => [],
  backlog: async () => ({ messages: 0, letters: 0 }),
  timeline: {
    status: () => ({ state: "unknown" as const, reason: REASON }),
    confirm: async () => {},
  },
};
const routes = [
  ...healthRoutes({ ...source, telemetry: undefined as never }),
  ...clusterRoutes(source),
];

async function reasonsIn(path: string, principal: Principal): Promise<number> {
  const { answer } = routes.find(({ route }) => route.path === path)!;
  const reply = { code: () => reply } as unknown as FastifyReply;
  const request = { query: {}, headers: {} } as FastifyRequest;
  return JSON.stringify(await answer(request, reply, principal)).split(REASON).length - 1;
}

const token = (role: AuthToken["role"], tenant: string) => ({
  ...{ name: `${tenant}-${role}`, role, tenant },
  sha256: `${role}${tenant}`,
});
const principalsOf = (...tokens: ReturnType<typeof token>[]): Promise<Principal[]> => {
  const known = new KnownTokens([() => tokens]);
  const principalOf = (rule: AuthToken) => ({ ...rule, operates: known.operates(rule) });
  const source = createConfigTokens({ tokens, principalOf });
  return Promise.all(tokens.map(async (one) => (await source.configured!(one))!));
};

test.each([
  "/health/ready",
  "/api/v1/cluster",
])("%s shows the reasons of a failure to operators only", async (path) => {
  for (const principal of await principalsOf(token("admin", "default"), token("viewer", "default")))
    expect(await reasonsIn(path, principal), "of one tenant").toBe(2);
  const [all, ...others] = await principalsOf(
    ...[token("admin", "*"), token("admin", "default"), token("viewer", "blue")],
  );
  expect(await reasonsIn(path, all!)).toBe(2);
  for (const principal of [...others, ANONYMOUS])
    expect([principal.name, await reasonsIn(path, principal)]).toEqual([principal.name, 0]);
});
