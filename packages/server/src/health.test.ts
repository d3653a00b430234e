import { TenureError } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createManualClock } from "../testing/manual-clock.ts";
import { createHealth, type Dependency, type Phase, shareWrite } from "./health.ts";

describe("health", () => {
  test("is ready when every store answers", async () => {
    const { health } = create([store("postgres"), store("redis")]);
    expect(await health()).toEqual({
      status: "ready",
      dependencies: [
        { name: "postgres", kind: "test", ok: true },
        { name: "redis", kind: "test", ok: true },
      ],
    });
  });

  test("names the store that does not, and why", async () => {
    const down = new TenureError("DEPENDENCY_DOWN", {
      dependency: "redis",
      reason: "ECONNREFUSED",
    });
    const { health, answers } = create([
      store("postgres"),
      store("redis", () => Promise.reject(down)),
    ]);
    expect(await health()).toEqual({
      status: "not_ready",
      dependencies: [
        { name: "postgres", kind: "test", ok: true },
        { name: "redis", kind: "test", ok: false, reason: "ECONNREFUSED" },
      ],
    });
    expect(answers).toEqual(["postgres up", "redis down"]);
  });

  test("does not wait for ever for a store that says nothing", async () => {
    const { health, clock } = create([store("postgres", () => new Promise(() => {}))]);
    const asked = health();
    await Promise.resolve();
    clock.advance(2_000);
    expect(await asked).toMatchObject({
      status: "not_ready",
      dependencies: [{ ok: false, reason: "no answer within 2000 ms" }],
    });
  });

  test.each([
    "starting",
    "stopping",
  ] as const)("while %s is that, whatever the stores say", async (phase) => {
    const { health } = create([store("postgres")], phase);
    expect(await health()).toMatchObject({ status: phase, dependencies: [{ ok: true }] });
  });

  test("asks once for a crowd, and again for whoever comes later", async () => {
    let pings = 0;
    const ping = async () => {
      pings += 1;
    };
    const { health } = create([store("postgres", ping)]);
    await Promise.all(Array.from({ length: 100 }, health));
    expect(pings).toBe(1);
    await health();
    expect(pings).toBe(2);
  });
});

describe("the write of readiness", () => {
  test("is one in five seconds, however many ask", async () => {
    const clock = createManualClock();
    let writes = 0;
    const write = shareWrite(async () => void writes++, clock);
    await Promise.all(Array.from({ length: 100 }, write));
    clock.advance(4_999);
    await write();
    expect(writes).toBe(1);
    clock.advance(1);
    await write();
    expect(writes).toBe(2);
  });

  test("fails for all who ask, and is tried again a second later", async () => {
    const clock = createManualClock();
    let isReadOnly = true;
    const write = shareWrite(async () => {
      if (isReadOnly) throw new Error("read-only transaction");
    }, clock);
    for (const asked of [write(), write()]) await expect(asked).rejects.toThrow("read-only");
    isReadOnly = false;
    await expect(write()).rejects.toThrow("read-only");
    clock.advance(1_000);
    await write();
  });

  test("is not doubled while one is under way", async () => {
    const clock = createManualClock();
    let writes = 0;
    const write = shareWrite(() => {
      writes += 1;
      return new Promise(() => {});
    }, clock);
    void write();
    clock.advance(60_000);
    void write();
    expect(writes).toBe(1);
  });
});

const store = (name: string, ping: Dependency["ping"] = async () => {}): Dependency => ({
  name,
  kind: "test",
  ping,
});

function create(dependencies: Dependency[], phase: Phase = "running") {
  const clock = createManualClock();
  const answers: string[] = [];
  const health = createHealth({
    dependencies,
    clock,
    phase: () => phase,
    onAnswer: (name, ok) => answers.push(`${name} ${ok ? "up" : "down"}`),
  });
  return { health, clock, answers };
}
