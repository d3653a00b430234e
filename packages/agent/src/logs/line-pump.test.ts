import { PassThrough, Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { LINE_BYTES_MAX, pumpLines } from "./line-pump.ts";
import { createNotifier } from "./log-follower.ts";
import { createTail } from "./tail.ts";

async function pumped(...chunks: string[]): Promise<string[]> {
  const taken: string[] = [];
  await pumpLines(Readable.from(chunks.map((chunk) => Buffer.from(chunk))), async (lines) => {
    taken.push(lines.toString());
  });
  return taken;
}

describe("the output of a child is passed on", () => {
  test("in whole lines, regardless of its chunks", async () => {
    expect(await pumped("a", "b\nc", "\n", "d\ne\n")).toEqual(["ab\n", "c\n", "d\ne\n"]);
  });

  test("to its end, with the missing line break", async () => {
    expect(await pumped("a\nlast")).toEqual(["a\n", "last\n"]);
    expect(await pumped()).toEqual([]);
  });

  test("before a line without an end fills memory", async () => {
    const piece = "x".repeat(1_000);
    const taken = await pumped(...Array.from({ length: 100 }, () => piece));
    expect(taken.length).toBeGreaterThan(5);
    expect(Math.max(...taken.map((one) => one.length))).toBeLessThan(LINE_BYTES_MAX + 1_001);
    expect(taken.join("").replaceAll("\n", "")).toBe(piece.repeat(100));
  });

  test("no faster than its lines are taken", async () => {
    const stream = new PassThrough();
    const taken: (() => void)[] = [];
    const pump = pumpLines(stream, () => new Promise((resolve) => taken.push(resolve)));
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    for (let n = 0; n < 5; n++) {
      stream.write(`${n}\n`);
      await turn();
    }
    stream.end();
    expect(taken).toHaveLength(1);
    for (let n = 0; n < taken.length; n++) {
      taken[n]?.();
      for (let turns = 0; turns < 5; turns++) await turn();
    }
    await pump;
    expect(taken.length).toBeGreaterThan(1);
  });

  test("also when its pipe breaks", async () => {
    const stream = new PassThrough();
    const taken: string[] = [];
    const pump = pumpLines(stream, async (lines) => void taken.push(lines.toString()));
    stream.write("a\nb");
    await new Promise((resolve) => setImmediate(resolve));
    stream.destroy(new Error("reset"));
    await pump;
    expect(taken).toEqual(["a\n", "b\n"]);
  });
});

describe("a notifier", () => {
  test("keeps a notification for the next wait, once", async () => {
    const notifier = createNotifier();
    notifier.notify();
    notifier.notify();
    await notifier.wait();
    let woken = false;
    const next = notifier.wait().then(() => {
      woken = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(woken).toBe(false);
    notifier.notify();
    await next;
  });
});

describe("the tail keeps", () => {
  const small = { bytesMax: 20, linesMax: 2 };

  test("the last lines, within its limit of bytes", () => {
    const tail = createTail(small);
    tail.add(Buffer.from("one\ntwo\n"));
    tail.add(Buffer.from("three\n"));
    expect(tail.text()).toBe("two\nthree");
    tail.add(Buffer.from("x".repeat(1_000)));
    expect(tail.text()).toBe("x".repeat(20));
  });

  test("text that every store accepts", () => {
    const tail = createTail(small);
    tail.add(Buffer.from([0x61, 0x00, 0xff, 0x62]));
    expect(tail.text()).toBe("a\uFFFD\uFFFDb");
  });
});
