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
  const say = async (...lines: string[]): Promise<void> => {
    for (const line of lines) await writer.append(Buffer.from(`${line}\n`));
  };
  const read = (selection: { lines?: number; file?: number; from?: string } = {}) =>
    logs.read({ deployment_id: id, ...selection });
  return { id, directory: join(directory, id), logs, writer, failures, say, read };
}

const numbered = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, index) => `line ${first + index}`);

describe("reading", () => {
  test("a deployment that is here and has said nothing has an empty log", async () => {
    expect(await oneLog().read()).toEqual({ lines: [], next: "1:0", files: [] });
  });

  test("a deployment that never was here has none", async () => {
    await expect(oneLog().logs.read({ deployment_id: randomUUID() })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
  });

  test("the last lines, and from there on what comes later", async () => {
    const { say, read } = oneLog();
    await say("one", "two", "three");
    const { lines, next } = await read({ lines: 2 });
    expect(lines).toEqual(["two", "three"]);
    expect(await read({ from: next })).toMatchObject({ lines: [], next });
    await say("four");
    expect((await read({ from: next })).lines).toEqual(["four"]);
  });

  test("the last lines reach back into rotated files, those of a named file do not", async () => {
    const { say, read } = oneLog();
    await say(...numbered(1, 30));
    expect((await read({ lines: 20 })).lines).toEqual(numbered(11, 30));
    const current = (await read({ lines: 20, file: 0 })).lines;
    const before = (await read({ lines: 20, file: 1 })).lines;
    expect(current.length).toBeLessThan(13);
    expect([...before, ...current]).toEqual(numbered(31 - before.length - current.length, 30));
  });

  test("only so many files are kept, and a position in one that is gone means the oldest line there is", async () => {
    const { say, read, directory } = oneLog();
    await say("line 0");
    const { next } = await read();
    await say(...numbered(1, 100));
    expect(readdirSync(directory)).toHaveLength(3);
    expect((await read()).files).toEqual([0, 1, 2]);
    const { lines } = await read({ from: next });
    expect(lines).toEqual(numbered(101 - lines.length, 100));
    await expect(read({ file: 3 })).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("page after page gives every line once, across files", async () => {
    const { say, read } = oneLog({ ...SMALL, filesMax: 100 });
    await say(...numbered(1, 100));
    const all: string[] = [];
    for (let from = "1:0"; ; ) {
      const { lines, next } = await read({ from, lines: 7 });
      if (lines.length === 0) break;
      all.push(...lines);
      from = next;
    }
    expect(all).toEqual(numbered(1, 100));
  });

  test("a line that is not finished is not given, unless its file is", async () => {
    const { say, read, directory } = oneLog();
    await say("whole");
    appendFileSync(join(directory, "00000001.log"), "half");
    expect(await read()).toMatchObject({ lines: ["whole"], next: "1:6" });
    expect((await read({ from: "1:6" })).lines).toEqual([]);
    writeFileSync(join(directory, "00000002.log"), "next file\n");
    expect((await read()).lines).toEqual(["whole", "half", "next file"]);
    expect((await read({ from: "1:6" })).lines).toEqual(["half", "next file"]);
    expect((await read({ lines: 1, file: 1 })).lines).toEqual(["half"]);
  });

  test("bytes that are no text are replaced, control characters are left to whoever shows them", async () => {
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
    const { say, read } = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    for (let n = 0; n < 300; n++) await say(`${n} ${character.repeat(10_000)}`);
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

  test("a line without an end is given in pieces, and no character is cut", async () => {
    const { read, directory, say } = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    await say("begin");
    appendFileSync(join(directory, "00000001.log"), `${"€".repeat(100_000)}\nend\n`);
    const { lines } = await read({ from: "1:0" });
    expect(lines[0]).toBe("begin");
    expect(lines.at(-1)).toBe("end");
    expect(lines.slice(1, -1).join("")).toBe("€".repeat(100_000));
    expect(Math.max(...lines.map((line) => Buffer.byteLength(line)))).toBeLessThanOrEqual(
      LINE_BYTES_MAX,
    );
  });

  test("a position that is none, and an id that is a path, are refused", async () => {
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
    const heard = (): string[] => chunks.flatMap(({ lines }) => lines);
    const begun = log.logs.follow(
      { deployment_id: log.id, ...selection },
      { onLines: (chunk) => void chunks.push(chunk), signal: stop.signal },
    );
    return { begun, heard, chunks, stop };
  }

  test("the lines asked for come first, then every new one, across rotation, each once", async () => {
    const log = oneLog({ ...SMALL, filesMax: 100 });
    await log.say(...numbered(1, 20));
    const { begun, heard } = listen(log, { lines: 5 });
    await begun;
    for (let n = 21; n <= 120; n++) await log.say(`line ${n}`);
    await until(() => heard().includes("line 120"), { ...PATIENT, what: "the last line" });
    expect(heard()).toEqual(numbered(16, 120));
  });

  test("a log that has not begun is followed from its first line", async () => {
    const log = oneLog();
    const { begun, heard } = listen(log);
    await begun;
    await log.say("at last");
    await until(() => heard().length > 0, { ...PATIENT, what: "the first line" });
    expect(heard()).toEqual(["at last"]);
  });

  test("whoever falls behind what is kept is told that lines are missing, once", async () => {
    const log = oneLog();
    await log.say(...numbered(1, 60));
    const { begun, heard } = listen(log, { from: "1:0" });
    await begun;
    await until(() => heard().includes("line 60"), { ...PATIENT, what: "the last line" });
    await log.say("line 61");
    await until(() => heard().includes("line 61"), { ...PATIENT, what: "a new line" });
    expect(heard()[0]).toBe("[tenure] lines were rotated away before they could be read");
    expect(heard().slice(1)).toEqual(numbered(63 - heard().length, 61));
  });

  test("nothing is heard after the signal", async () => {
    const log = oneLog();
    const { begun, heard, stop } = listen(log);
    await begun;
    await log.say("before");
    await until(() => heard().length === 1, { ...PATIENT, what: "the line before" });
    stop.abort();
    await log.say("after");
    const other = listen(log);
    await other.begun;
    await until(() => other.heard().length === 2, { ...PATIENT, what: "somebody else to hear it" });
    expect(heard()).toEqual(["before"]);
  });

  test("whoever is slow gets the next lines when it has taken the former, in chunks that fit a frame", async () => {
    const log = oneLog({ ...SMALL, fileBytesMax: 10_000_000 });
    for (let n = 0; n < 200; n++) await log.say(`${n} ${"\u0001".repeat(2_000)}`);
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

describe("a disk that does not take it", () => {
  test("lines are dropped and counted while it is full, and a note says so when it works again", async () => {
    const { writer, say, read, directory, failures } = oneLog();
    await say("before");
    await writer.close();
    rmSync(directory, { recursive: true });
    mkdirSync(directory);
    symlinkSync("/dev/full", join(directory, "00000001.log"));
    await say("lost", "lost", "lost");
    expect(writer.dropped).toBe(3);
    expect(failures).toEqual([expect.stringContaining("ENOSPC")]);
    rmSync(join(directory, "00000001.log"));
    await say("after");
    expect((await read()).lines).toEqual([
      expect.stringMatching(/^\[tenure\] 3 lines were dropped here: ENOSPC/),
      "after",
    ]);
  });

  test("a directory that cannot be made drops lines until it can", async () => {
    const parent = join(scratchDirectory("logs"), "not-a-directory");
    writeFileSync(parent, "");
    const { say, read, writer } = oneLog(SMALL, parent);
    await say("lost");
    expect(writer.dropped).toBe(1);
    rmSync(parent);
    await say("kept");
    expect((await read()).lines).toEqual([expect.stringContaining("1 lines were dropped"), "kept"]);
  });

  test("between two tries nothing is tried", async () => {
    const { writer, say, directory } = oneLog({ ...SMALL, retryAfterMs: 3_600_000 });
    mkdirSync(directory, { recursive: true });
    symlinkSync("/dev/full", join(directory, "00000001.log"));
    await say("lost");
    rmSync(join(directory, "00000001.log"));
    await say("lost too");
    expect(writer.dropped).toBe(2);
    expect(readdirSync(directory)).toEqual([]);
  });

  test("files that somebody removed are begun anew", async () => {
    const { say, read, directory } = oneLog({ ...SMALL, checkEveryMs: -1 });
    await say("removed");
    rmSync(directory, { recursive: true });
    await say("visible");
    expect((await read()).lines).toEqual(["visible"]);
  });
});

test("the log of a killed agent goes on where it was, and its half line ends", async () => {
  const directory = scratchDirectory("logs");
  const { say, read, directory: own } = oneLog(SMALL, directory);
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, "00000007.log"), "whole\nhal");
  await say("next");
  expect((await read()).lines).toEqual(["whole", "hal", "next"]);
  expect(readdirSync(own)).toEqual(["00000007.log"]);
});
