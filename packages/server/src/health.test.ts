import { TenureError } from "@tenure/protocol";
import { describe, expect, test } from "vitest";
import { createManualClock } from "../testing/manual-clock.ts";
import { createHealth, type Dependency, type Phase } from "./health.ts";

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
