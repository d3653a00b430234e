import { chmodSync } from "node:fs";
import { afterEach, describe, expect, test, vi } from "vitest";
import { scratchDirectory } from "../scratch.ts";
import { isAtLeast } from "./program.ts";
import { findPostgres, findRedis, ProgramsMissing } from "./programs.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

describe("finding the programs", () => {
  test("compares versions by number", () => {
    expect(isAtLeast("14", "14")).toBe(true);
    expect(isAtLeast("7.0.15", "6.2")).toBe(true);
    expect(isAtLeast("6.10.1", "6.2")).toBe(true);
    expect(isAtLeast("6.0.16", "6.2")).toBe(false);
    expect(isAtLeast("9.6.24", "14")).toBe(false);
  });

  test("npm has brought a Postgres that runs here", async () => {
    vi.stubEnv("TENURE_TEST_POSTGRES_BIN", "bring");
    const { origin, version } = await findPostgres();
    expect(origin).toBe("npm's");
    expect(isAtLeast(version, "18")).toBe(true);
  });

  test("a directory that was set and has no such program is one sentence", async () => {
    vi.stubEnv("TENURE_TEST_REDIS_BIN", "/var/empty");
    const sentence =
      "There is no redis-server (6.2 or later, with redis-cli beside it) in /var/empty.";
    await expect(findRedis()).rejects.toThrow(new ProgramsMissing(sentence));
  });

  test("no Redis and no way to bring one is one sentence that says what to do", async () => {
    const emptyTemporaryDirectory = scratchDirectory("no-cache");
    chmodSync(emptyTemporaryDirectory, 0o755);
    vi.stubEnv("TMPDIR", emptyTemporaryDirectory);
    vi.stubEnv("PATH", "/var/empty");
    vi.stubEnv("TENURE_TEST_REDIS_BIN", "");
    await expect(findRedis()).rejects.toThrow(
      new ProgramsMissing(
        "The tests need Redis 6.2 or later and could not bring it (spawn apt-get ENOENT): " +
          "install it, or set TENURE_TEST_REDIS_BIN to the directory of redis-server.",
      ),
    );
  });
});
