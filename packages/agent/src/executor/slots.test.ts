import { describe, expect, test } from "vitest";
import { createSlots, type Slot, type SlotKind } from "./slots.ts";

const never = new AbortController().signal;

/** Who has begun, in order. */
function crowd(max: number) {
  const slots = createSlots(max);
  const begun: string[] = [];
  const held = new Map<string, Slot>();
  const ask = (name: string, kind: SlotKind, signal = never): Promise<void> =>
    slots.take(kind, signal).then((slot) => {
      begun.push(name);
      held.set(name, slot);
    });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return { ask, begun, held, settle };
}

describe("slots", () => {
  test("are given in order, as they become free", async () => {
    const { ask, begun, held, settle } = crowd(2);
    for (const name of ["a", "b", "c", "d"]) void ask(name, "start");
    await settle();
    expect(begun).toEqual(["a", "b"]);
    held.get("b")?.release();
    held.get("b")?.release();
    await settle();
    expect(begun).toEqual(["a", "b", "c"]);
  });

  test("leave one for starts while installs wait", async () => {
    const { ask, begun, settle } = crowd(3);
    for (const name of ["a", "b", "c"]) void ask(name, "install");
    void ask("ready", "start");
    await settle();
    expect(begun).toEqual(["a", "b", "ready"]);
  });

  test("are converted from install to start, and another install may begin", async () => {
    const { ask, begun, held, settle } = crowd(3);
    for (const name of ["a", "b", "c"]) void ask(name, "install");
    await settle();
    held.get("a")?.convertTo("start");
    await settle();
    expect(begun).toEqual(["a", "b", "c"]);
    void ask("d", "start");
    await settle();
    expect(begun).toHaveLength(3);
    held.get("a")?.release();
    await settle();
    expect(begun).toEqual(["a", "b", "c", "d"]);
  });

  test("allow installs also if there is only one", async () => {
    const { ask, begun, settle } = crowd(1);
    void ask("a", "install");
    await settle();
    expect(begun).toEqual(["a"]);
  });

  test("skip a caller whose signal aborted", async () => {
    const { ask, begun, held, settle } = crowd(1);
    const leaving = new AbortController();
    void ask("a", "start");
    const left = ask("b", "start", leaving.signal);
    void ask("c", "start");
    leaving.abort(new Error("changed"));
    await expect(left).rejects.toThrow("changed");
    await settle();
    held.get("a")?.release();
    await settle();
    expect(begun).toEqual(["a", "c"]);
    await expect(ask("d", "start", leaving.signal)).rejects.toThrow("changed");
  });
});
