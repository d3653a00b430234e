import { chmodSync, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, test, vi } from "vitest";
import { asOther, openDirectory, otherUser } from "./other-user.ts";

vi.setConfig({ testTimeout: 240_000 });

const READY_DEADLINE_MS = 110_000;
const RUN_ANYTHING = JSON.stringify({ name: "pwned", command: "id > /tmp/owned" });

test("tenure dev serves its own user: another one has no token, and commands of its own find it", async () => {
  const dataDir = join(openDirectory("home"), "data");
  const runtime = scratchDirectory("runtime");
  const env = { XDG_RUNTIME_DIR: runtime };
  const dev = startTenure(["dev", "--port", "0", "--no-demo"], { dataDir, env });
  const [, url = ""] = await dev.waitForLine(/ready at (http:\S+)/, READY_DEADLINE_MS);
  const ask = (path: string, body: string, headers: Record<string, string> = {}) =>
    fetch(`${url}/api/v1/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
    });

  // The attack: an operator's write by a local user without a token.
  expect((await ask("deployments", RUN_ANYTHING)).status).toBe(401);
  const tokenFile = join(dataDir, "dev-token");
  const token = readFileSync(tokenFile, "utf8").trim();
  expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
  if (otherUser) expect(await asOther('cat "$1"/dev-token', dataDir)).not.toContain(token);

  const listed = async (more: Record<string, string> = {}) => {
    const command = startTenure(["deployment", "ls", "--url", url], { env: { ...env, ...more } });
    return (await command.exited).code;
  };
  expect(await listed()).toBe(0);
  // A pointer that others could have written, or of another user's directory, is not believed.
  const pointer = join(runtime, "tenure-dev", readdirSync(join(runtime, "tenure-dev"))[0]!);
  chmodSync(pointer, 0o644);
  expect(await listed()).toBe(1);
  chmodSync(pointer, 0o600);
  expect(await listed({ XDG_RUNTIME_DIR: scratchDirectory("other") })).toBe(1);

  // The console's link signs in once.
  const [, code = ""] = /console http:\S+#code=(\S+)/.exec(dev.stdout()) ?? [];
  expect(code.length).toBeGreaterThan(30);
  const login = () => ask("login", JSON.stringify({ token: code }), { origin: url });
  const first = await login();
  expect([first.status, await first.json()]).toEqual([
    200,
    expect.objectContaining({ role: "admin" }),
  ]);
  expect(first.headers.get("set-cookie")).toContain("HttpOnly");
  expect((await login()).status).toBe(401);
  // And the code is no bearer token.
  expect((await ask("deployments", RUN_ANYTHING, { authorization: `Bearer ${code}` })).status).toBe(
    401,
  );

  await dev.stop();
  expect(existsSync(pointer)).toBe(false);
});
