import { startTenure } from "@tenure/testing/processes/process";
import { expect, test } from "vitest";

// A server that is known by a public name, or to pages of other sites, and asks for no token: a proxy in front of it, or
// a browser on its machine, would make every stranger its admin. It must not start.

async function startedWith(
  env: Record<string, string>,
): Promise<{ code: number | null; said: string }> {
  const server = startTenure(["server", "--port", "0"], { env });
  const ready = server.waitForLine(/^tenure ready at /, 110_000).then(
    () => server.stop(),
    () => {},
  );
  const [{ code }] = await Promise.all([server.exited, ready]);
  return { code, said: server.stderr() + server.stdout() };
}

test("a secret that can be guessed is refused", async () => {
  const { code, said } = await startedWith({ TENURE_TOKENS: "admin:a" });
  expect(said).toContain("TENURE_TOKENS: entry 1: the secret must have at least 16 characters");
  expect(said).not.toContain("tenure ready at");
  expect(code).not.toBe(0);
});

test.each([
  [{ TENURE_SERVER_ADVERTISE_URL: "https://tenure.example.com" }, "server.advertise_url"],
  [{ TENURE_SERVER_ALLOWED_ORIGINS: "https://pages.example.com" }, "server.allowed_origins"],
])("%j without a token does not start", async (env, name) => {
  const { code, said } = await startedWith(env as Record<string, string>);
  expect(said).toContain(name);
  expect(said).toContain("must have at least one token");
  expect(said).not.toContain("tenure ready at");
  expect(code).not.toBe(0);
});
