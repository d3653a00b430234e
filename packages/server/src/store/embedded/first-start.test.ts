import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { startServer } from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startTenure } from "@tenure/testing/processes/process";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { expect, onTestFinished, test, vi } from "vitest";

// The first start of a real server: the process that makes the database, and what it leaves when either of them is ended.

vi.setConfig({ testTimeout: 180_000 });

/** Measured on a busy machine: 198 to 246 MB. With initdb in the server it was 391 to 722. */
const RESIDENT_MB_MAX = 260;

test("when the server is ready, the process that makes the database and its memory are gone", async () => {
  const server = await startServer({ dataDir: scratchDirectory("first-start") });
  onTestFinished(async () => void (await server.kill9()));
  expect(initsOf(server.dataDir!)).toEqual([]);
  expect(readdirSync(server.dataDir!).sort()).toEqual(["lock", "postgres"]);
  expect(server.rssMb()).toBeLessThan(RESIDENT_MB_MAX);
});

for (const end of ["SIGKILL", "SIGTERM"] as const) {
  test(`a server ended by ${end} during the first start takes the init process with it`, async () => {
    const { server, init, dataDir } = await startUntilInit();
    await (end === "SIGKILL" ? server.kill9() : server.stop());
    await until(() => !isAlive(init), { what: "the init process to end" });
    expect(existsSync(join(dataDir, "postgres"))).toBe(false);
    await startsOn(dataDir);
  });
}

test("a server whose init process is killed says so, ends, and starts the next time", async () => {
  const { server, init, dataDir } = await startUntilInit();
  process.kill(init, "SIGKILL");
  expect(await server.exited).toMatchObject({ code: 1 });
  expect(server.stderr()).toContain("the process that makes the database ended (SIGKILL)");
  expect(existsSync(join(dataDir, "postgres"))).toBe(false);
  await startsOn(dataDir);
});

test("the init process keeps the data directory locked until it has ended", async () => {
  const { server, init, dataDir } = await startUntilInit();
  process.kill(init, "SIGSTOP");
  onTestFinished(() => void (isAlive(init) && process.kill(init, "SIGKILL")));
  await server.kill9();
  const second = startTenure(["server", "--port", "0"], { dataDir });
  expect(await second.exited).toMatchObject({ code: 1 });
  expect(second.stderr()).toContain("is in use by another server");
  process.kill(init, "SIGCONT");
  await until(() => !isAlive(init), { what: "the init process to end" });
  await startsOn(dataDir);
});

/** Until the init process has begun to write. */
async function startUntilInit(): Promise<{
  server: RunningProcess;
  init: number;
  dataDir: string;
}> {
  const dataDir = scratchDirectory("first-start");
  const server = startTenure(["server", "--port", "0"], { dataDir });
  onTestFinished(async () => void (await server.kill9()));
  const init = await until(() => initsOf(dataDir)[0], { what: "the init process" });
  const base = join(dataDir, "postgres.unfinished", "base");
  await until(() => existsSync(base), { deadlineMs: 60_000, what: "its first files" });
  return { server, init, dataDir };
}

async function startsOn(dataDir: string): Promise<void> {
  const server = await startServer({ dataDir });
  onTestFinished(async () => void (await server.kill9()));
  expect(await server.health()).toMatchObject({ code: 200 });
  expect(existsSync(join(dataDir, "postgres.unfinished"))).toBe(false);
}

/** The processes that make a database in this data directory. */
function initsOf(dataDir: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      const command = commandOf(pid);
      return command.includes("pglite-init.js") && command.includes(dataDir);
    });
}

/** A zombie has no command line: it has ended, whether its parent has noticed or not. */
const isAlive = (pid: number): boolean => commandOf(pid) !== "";

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
