import { randomUUID } from "node:crypto";
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { LogLines } from "@tenure/protocol";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { PATIENT } from "../../testing/executor-fixture.ts";
import { LINE_BYTES_MAX } from "./line-pump.ts";
import { createLogs } from "./logs.ts";

vi.setConfig({ testTimeout: 120_000 });

const SMALL = { fileBytesMax: 100, filesMax: 3, retryAfterMs: 0, checkEveryMs: 0 };

/** The log of one deployment, in files of a few lines. */
function oneLog(limits = SMALL, directory = scratchDirectory("logs")) {
  const id = randomUUID();
  const failures: string[] = [];
  const logs = createLogs({
    directory,
    limits,
    isKnown: (one) => one === id,
    onFailed: (_, error) => failures.push(error.message),
  });
  const writer = logs.writer(id);
  onTestFinished(() => writer.close());
  const write = async (...lines: string[]): Promise<void> => {
    for (const line of lines) await writer.append(Buffer.from(`${line}\n`));
  };
  const read = (selection: { lines?: number; file?: number; from?: string } = {}) =>
    logs.read({ deployment_id: id, ...selection });
  return { id, directory: join(directory, id), logs, writer, failures, write, read };
}

const numbered = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, index) => `line ${first + index}`);

describe("reading", () => {
  test("a deployment without output has an empty log", async () => {
    expect(await oneLog().read()).toEqual({ lines: [], next: "1:0", files: [] });
  });

  test("a deployment that never was here has no log", async () => {
    await expect(oneLog().logs.read({ deployment_id: randomUUID() })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
  });

  test("a read returns the last lines, and from its position the later ones", async () => {
    const { write, read } = oneLog();
    await write("one", "two", "three");
    const { lines, next } = await read({ lines: 2 });
    expect(lines).toEqual(["two", "three"]);
    expect(await read({ from: next })).toMatchObject({ lines: [], next });
    await write("four");
    expect((await read({ from: next })).lines).toEqual(["four"]);
  });

  test("the last lines include rotated files, those of a named file do not", async () => {
    const { write, read } = oneLog();
    await write(...numbered(1, 30));
    expect((await read({ lines: 20 })).lines).toEqual(numbered(11, 30));
    const current = (await read({ lines: 20, file: 0 })).lines;
    const before = (await read({ lines: 20, file: 1 })).lines;
    expect(current.length).toBeLessThan(13);
    expect([...before, ...current]).toEqual(numbered(31 - before.length - current.length, 30));
  });

  test("the number of files is limited, and a position in a removed file means the oldest line", async () => {
    const { write, read, directory } = oneLog();
    await write("line 0");
    const { next } = await read();
    await write(...numbered(1, 100));
    expect(readdirSync(directory)).toHaveLength(3);
    expect((await read()).files).toEqual([0, 1, 2]);
    const { lines } = await read({ from: next });
    expect(lines).toEqual(numbered(101 - lines.length, 100));
    await expect(read({ file: 3 })).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("page after page returns every line once, across files", async () => {
    const { write, read } = oneLog({ ...SMALL, filesMax: 100 });
    await write(...numbered(1, 100));
    const all: string[] = [];
    for (let from = "1:0"; ; ) {
      const { lines, next } = await read({ from, lines: 7 });
      if (lines.length === 0) break;
      all.push(...lines);
      from = next;
    }
    expect(all).toEqual(numbered(1, 100));
  });

  test("a line without its line break is returned only from a finished file", async () => {
    const { write, read, directory } = oneLog();
    await write("whole");
    appendFileSync(join(directory, "00000001.log"), "half");
    expect(await read()).toMatchObject({ lines: ["whole"], next: "1:6" });
    expect((await read({ from: "1:6" })).lines).toEqual([]);
    writeFileSync(join(directory, "00000002.log"), "next file\n");
    expect((await read()).lines).toEqual(["whole", "half", "next file"]);
    expect((await read({ from: "1:6" })).lines).toEqual(["half", "next file"]);
    expect((await read({ lines: 1, file: 1 })).lines).toEqual(["half"]);
  });

  test("bytes that are no text are replaced, control characters are kept", async () => {
    const { writer, read } = oneLog();
    await writer.append(
      Buffer.from([0x61, 0xff, 0xfe, 0x62, 0x0d, 0x0a, 0x1b, 0x5b, 0x31, 0x6d, 0x00, 0x0a]),
    );
    expect((await read()).lines).toEqual(["a\uFFFD\uFFFDb", "\u001b[1m\0"]);
  });

  test.each([
    ["control characters", "\u0001"],
    ["ordinary text", "x"],
  ])("an answer full of %s fits in a frame, and keeps the newest lines", async (_, character) => {
    const { write, read } = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    for (let n = 0; n < 300; n++) await write(`${n} ${character.repeat(10_000)}`);
    const answer = await read({ lines: 10_000 });
    expect(Buffer.byteLength(JSON.stringify(answer))).toBeLessThan(768 * 1024);
    expect(answer.lines.at(-1)).toMatch(/^299 /);
    const forward = await read({ from: "1:0" });
    expect(Buffer.byteLength(JSON.stringify(forward))).toBeLessThan(768 * 1024);
    expect(forward.lines[0]).toMatch(/^0 /);
    expect((await read({ from: forward.next })).lines[0]).toMatch(
      new RegExp(`^${forward.lines.length} `),
    );
  });

  test("a line without an end is split, and no character is cut", async () => {
    const { read, directory, write } = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    await write("begin");
    appendFileSync(join(directory, "00000001.log"), `${"€".repeat(100_000)}\nend\n`);
    const { lines } = await read({ from: "1:0" });
    expect(lines[0]).toBe("begin");
    expect(lines.at(-1)).toBe("end");
    expect(lines.slice(1, -1).join("")).toBe("€".repeat(100_000));
    expect(Math.max(...lines.map((line) => Buffer.byteLength(line)))).toBeLessThanOrEqual(
      LINE_BYTES_MAX,
    );
  });

  test("an invalid position and an id that is a path are refused", async () => {
    const { read, logs } = oneLog();
    await expect(read({ from: "../1:0" })).rejects.toMatchObject({ code: "INVALID_REQUEST" });
    await expect(logs.read({ deployment_id: "../../etc" })).rejects.toMatchObject({
      code: "INVALID_REQUEST",
    });
  });
});

describe("following", () => {
  function listen(
    log: ReturnType<typeof oneLog>,
    selection: { lines?: number; from?: string } = {},
  ) {
    const stop = new AbortController();
    onTestFinished(() => stop.abort());
    const chunks: LogLines[] = [];
    const received = (): string[] => chunks.flatMap(({ lines }) => lines);
    const begun = log.logs.follow(
      { deployment_id: log.id, ...selection },
      { onLines: (chunk) => void chunks.push(chunk), signal: stop.signal },
    );
    return { begun, received, chunks, stop };
  }

  test("a follower gets the selected lines, then every new one once, across rotation", async () => {
    const log = oneLog({ ...SMALL, filesMax: 100 });
    await log.write(...numbered(1, 20));
    const { begun, received } = listen(log, { lines: 5 });
    await begun;
    for (let n = 21; n <= 120; n++) await log.write(`line ${n}`);
    await until(() => received().includes("line 120"), { ...PATIENT, what: "the last line" });
    expect(received()).toEqual(numbered(16, 120));
  });

  test("a log that has not begun is followed from its first line", async () => {
    const log = oneLog();
    const { begun, received } = listen(log);
    await begun;
    await log.write("at last");
    await until(() => received().length > 0, { ...PATIENT, what: "the first line" });
    expect(received()).toEqual(["at last"]);
  });

  test("a follower behind the oldest file gets one note that lines are missing", async () => {
    const log = oneLog();
    await log.write(...numbered(1, 60));
    const { begun, received } = listen(log, { from: "1:0" });
    await begun;
    await until(() => received().includes("line 60"), { ...PATIENT, what: "the last line" });
    await log.write("line 61");
    await until(() => received().includes("line 61"), { ...PATIENT, what: "a new line" });
    expect(received()[0]).toBe("[tenure] lines were rotated away before they could be read");
    expect(received().slice(1)).toEqual(numbered(63 - received().length, 61));
  });

  test("a follower gets no lines after its signal", async () => {
    const log = oneLog();
    const { begun, received, stop } = listen(log);
    await begun;
    await log.write("before");
    await until(() => received().length === 1, { ...PATIENT, what: "the line before" });
    stop.abort();
    await log.write("after");
    const other = listen(log);
    await other.begun;
    await until(() => other.received().length === 2, {
      ...PATIENT,
      what: "the other follower to receive it",
    });
    expect(received()).toEqual(["before"]);
  });

  test("a slow follower gets the next lines when it has taken the former, in chunks that fit a frame", async () => {
    const log = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    for (let n = 0; n < 200; n++) await log.write(`${n} ${"\u0001".repeat(2_000)}`);
    const stop = new AbortController();
    onTestFinished(() => stop.abort());
    let inside = 0;
    let atOnceMax = 0;
    const sizes: number[] = [];
    const lines: string[] = [];
    await log.logs.follow(
      { deployment_id: log.id, from: "1:0" },
      {
        signal: stop.signal,
        async onLines(chunk) {
          inside++;
          atOnceMax = Math.max(atOnceMax, inside);
          await new Promise((resolve) => setImmediate(resolve));
          sizes.push(Buffer.byteLength(JSON.stringify(chunk)));
          lines.push(...chunk.lines);
          inside--;
        },
      },
    );
    await until(() => lines.length === 200, { ...PATIENT, what: "all lines" });
    expect(atOnceMax).toBe(1);
    expect(Math.max(...sizes)).toBeLessThan(80 * 1024);
  });
});

describe("a disk that rejects writes", () => {
  test("a full disk drops and counts lines, and the log has a note after it", async () => {
    const { writer, write, read, directory, failures } = oneLog();
    await write("before");
    await writer.close();
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
    symlinkSync("/dev/full", join(directory, "00000001.log"));
    await write("lost", "lost", "lost");
    expect(writer.dropped).toBe(3);
    expect(failures).toEqual([expect.stringContaining("ENOSPC")]);
    rmSync(join(directory, "00000001.log"));
    await write("after");
    expect((await read()).lines).toEqual([
      expect.stringMatching(/^\[tenure\] 3 lines were dropped here: ENOSPC/),
      "after",
    ]);
  });

  test("a directory that cannot be created drops lines until it can", async () => {
    const parent = join(scratchDirectory("logs"), "not-a-directory");
    writeFileSync(parent, "");
    const { write, read, writer } = oneLog(SMALL, parent);
    await write("lost");
    expect(writer.dropped).toBe(1);
    rmSync(parent);
    await write("kept");
    expect((await read()).lines).toEqual([expect.stringContaining("1 lines were dropped"), "kept"]);
  });

  test("a writer does not write between two retries", async () => {
    const { writer, write, directory } = oneLog({ ...SMALL, retryAfterMs: 3_600_000 });
    mkdirSync(directory, { recursive: true });
    symlinkSync("/dev/full", join(directory, "00000001.log"));
    await write("lost");
    rmSync(join(directory, "00000001.log"));
    await write("lost too");
    expect(writer.dropped).toBe(2);
    expect(readdirSync(directory)).toEqual([]);
  });

  test("files that were deleted are created again", async () => {
    const { write, read, directory } = oneLog({ ...SMALL, checkEveryMs: -1 });
    await write("removed");
    rmSync(directory, { recursive: true });
    await write("visible");
    expect((await read()).lines).toEqual(["visible"]);
  });
});

test("the log of a killed agent continues, after its half line is ended", async () => {
  const directory = scratchDirectory("logs");
  const { write, read, directory: own } = oneLog(SMALL, directory);
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, "00000007.log"), "whole\nhal");
  await write("next");
  expect((await read()).lines).toEqual(["whole", "hal", "next"]);
  expect(readdirSync(own)).toEqual(["00000007.log"]);
});
