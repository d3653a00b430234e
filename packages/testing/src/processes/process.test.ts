import { describe, expect, test } from "vitest";
import { until } from "../until.ts";
import { cpuMsOf, isAlive, isFrozen } from "./proc.ts";
import { startProcess, startTenure } from "./process.ts";

const node = (program: string, env: Record<string, string> = {}) =>
  startProcess({ command: process.execPath, args: ["-e", program], env });

describe("a process under test", () => {
  test("a process can be awaited by its output, and stops on SIGTERM", async () => {
    const server = node(`
      process.on("SIGTERM", () => process.exit(3));
      console.log("listening on http://127.0.0.1:7070");
      console.error("a warning");
      setInterval(() => {}, 1000);`);
    const [, port] = await server.waitForLine(/^listening on http:\/\/[^:]+:(\d+)/);
    expect(port).toBe("7070");
    await server.waitForLine(/warning/);
    expect(server.stderr()).toBe("a warning");
    expect(server.rssMb()).toBeGreaterThan(10);
    expect(await server.stop()).toEqual({ code: 3, signal: null });
    expect(await server.exited).toEqual({ code: 3, signal: null });
  });

  test("hears what it is told, and its processor time is known", async () => {
    const listener = startProcess({
      command: process.execPath,
      args: ["-e", `process.stdin.on("data", (line) => console.log("heard " + line))`],
      hears: true,
    });
    listener.tell("a word");
    await listener.waitForLine(/^heard a word$/);
    expect(cpuMsOf(listener.pid)).toBeGreaterThan(0);
    await listener.kill9();
    expect(cpuMsOf(listener.pid)).toBe(0);
  });

  test("that ends without the awaited line is told apart at once, with its last words", async () => {
    const broken = node(`console.error("no such file"); process.exit(2)`);
    await expect(broken.waitForLine(/ready/)).rejects.toThrow(/ended without.*\n?no such file/s);
    expect(await broken.exited).toEqual({ code: 2, signal: null });
  });

  test("that never writes the awaited line fails at the deadline", async () => {
    const silent = node("setInterval(() => {}, 1000)");
    await expect(silent.waitForLine(/ready/, 50)).rejects.toThrow("ran for 50 ms without a line");
    expect(await silent.kill9()).toEqual({ code: null, signal: "SIGKILL" });
  });

  test("that does not stop in time is killed, and the test hears of it", async () => {
    const deaf = node(
      `process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 9e4)`,
    );
    await deaf.waitForLine(/up/);
    await expect(deaf.stop(100)).rejects.toThrow("did not stop within 100 ms");
    expect(await deaf.exited).toEqual({ code: null, signal: "SIGKILL" });
  });

  test("a frozen process does nothing, and can be ended", async () => {
    const busy = node(`setInterval(() => console.log("tick"), 5)`);
    await busy.waitForLine(/tick/);
    await busy.freeze();
    expect(isFrozen(busy.pid)).toBe(true);
    const before = busy.stdout().length;
    await busy.thaw();
    await until(() => busy.stdout().length > before, { what: "another tick" });
    await busy.freeze();
    expect(await busy.stop()).toEqual({ code: null, signal: "SIGTERM" });
  });

  test("sees nothing of the tests' own environment", async () => {
    const asked = node("console.log(Object.keys(process.env).sort().join())", { MINE: "1" });
    await asked.exited;
    const names = asked.stdout().split(",");
    expect(names).toContain("MINE");
    expect(names).not.toContain("VITEST");
  });

  test("that cannot be started is an error, not a hang", () => {
    expect(() => startProcess({ command: "/no/such/program" })).toThrow("cannot be started");
  });
});

test("the built command line runs, and can be given a new data directory", async () => {
  const version = startTenure(["--version"]);
  expect(await version.exited).toEqual({ code: 0, signal: null });
  expect(version.stdout()).toMatch(/^\d+\.\d+\.\d+/);
  const dataDirs = [1, 2].map(() => startTenure(["--version"], { dataDir: true }).dataDir);
  expect(new Set(dataDirs).size).toBe(2);
});

test("a pid that now belongs to another process counts as dead", () => {
  expect(isAlive({ pid: process.pid, startTicks: 1 })).toBe(false);
});
