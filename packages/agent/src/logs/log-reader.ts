import { type FileHandle, open } from "node:fs/promises";
import { LINE_BYTES_MAX } from "./line-pump.ts";
import { type LogPlace, listLogFiles, logFilePath } from "./log-files.ts";

export interface LogBlock {
  lines: string[];
  next: LogPlace;
  /** The file of the place it should begin with is gone, and lines with it. */
  isSkipping: boolean;
}

/** Lines are read in blocks of this size; the longest line fits several times. */
const BLOCK_BYTES = 128 * 1024;
const LINE_BREAK = 10;

/**
 * The lines from a place on, across files: at most `linesMax`, and at most `jsonBytesMax` when they are sent. A place
 * whose file was rotated away means the oldest line there is. A line that is not finished yet is not given.
 */
export async function readForward(
  directory: string,
  from: LogPlace,
  limits: { linesMax: number; jsonBytesMax: number; lastNumber?: number | undefined },
): Promise<LogBlock> {
  const files = (await listLogFiles(directory)).reverse();
  const isSkipping = !files.includes(from.number) && files.some((number) => number > from.number);
  const lines: string[] = [];
  let next = from;
  let jsonBytes = 0;
  for (const number of files) {
    if (number < from.number || number > (limits.lastNumber ?? number)) continue;
    const isFinished = number !== files.at(-1);
    if (number !== next.number) next = { number, offset: 0 };
    for await (const { line, end } of linesOf(directory, next, isFinished)) {
      jsonBytes += jsonBytesOf(line);
      // One line is always given: a place that never moves on would be asked for again and again.
      if (lines.length > 0 && jsonBytes > limits.jsonBytesMax) return { lines, next, isSkipping };
      lines.push(line);
      next = { number, offset: end };
      if (lines.length >= limits.linesMax) return { lines, next, isSkipping };
    }
  }
  return { lines, next, isSkipping };
}

/** Where the last `lines` lines of these files begin, without going back more than `bytesMax`. Newest file first. */
export async function placeOfLast(
  directory: string,
  { numbers, lines, bytesMax }: { numbers: readonly number[]; lines: number; bytesMax: number },
): Promise<LogPlace | undefined> {
  const newest = (await listLogFiles(directory))[0];
  let place: LogPlace | undefined;
  let linesLeft = lines;
  let bytesLeft = bytesMax;
  for (const number of numbers) {
    const end = await readEnd(directory, number, bytesLeft);
    if (!end) break;
    const isFinished = number !== newest;
    const last = lastLines(end.bytes, { lines: linesLeft, isFinished, isWhole: end.offset === 0 });
    place = { number, offset: end.offset + last.begin };
    linesLeft -= last.count;
    bytesLeft -= end.bytes.length - last.begin;
    if (place.offset > 0 || linesLeft <= 0 || bytesLeft <= 0) break;
  }
  return place;
}

/** What a line costs in a message. A control character takes six bytes there, so the file's bytes say little. */
export const jsonBytesOf = (line: string): number => Buffer.byteLength(JSON.stringify(line)) + 1;

async function* linesOf(
  directory: string,
  { number, offset }: LogPlace,
  isFinished: boolean,
): AsyncGenerator<{ line: string; end: number }> {
  const handle = await openFile(directory, number);
  if (!handle) return;
  try {
    const block = Buffer.alloc(BLOCK_BYTES);
    for (let at = offset; ; ) {
      const { bytesRead } = await handle.read(block, 0, BLOCK_BYTES, at);
      const isEnd = bytesRead < BLOCK_BYTES;
      let begin = 0;
      for (const end of lineEnds(block.subarray(0, bytesRead), isEnd && isFinished)) {
        yield { line: textOf(block.subarray(begin, end)), end: at + end };
        begin = end;
      }
      at += begin;
      if (isEnd) return;
    }
  } finally {
    await handle.close();
  }
}

/** Ends of the lines in a block; a line that is too long ends early, `isLast` closes an open one. */
function* lineEnds(block: Buffer, isLast: boolean): Generator<number> {
  for (let begin = 0; begin < block.length; ) {
    const found = block.indexOf(LINE_BREAK, begin) + 1;
    const end = found === 0 ? block.length : found;
    // The line break itself may stand beyond the limit.
    if (end - begin > LINE_BYTES_MAX + 1) begin += wholeCharacters(block, begin, LINE_BYTES_MAX);
    else if (found > 0 || isLast) begin = end;
    else return;
    yield begin;
  }
}

/** So many bytes, or up to three fewer: a character is not cut. */
function wholeCharacters(block: Buffer, begin: number, bytes: number): number {
  for (let fewer = 0; fewer < 4; fewer++)
    if (((block[begin + bytes - fewer] ?? 0) & 0xc0) !== 0x80) return bytes - fewer;
  return bytes;
}

/** Bytes that are no UTF-8 are replaced; the line break is left out, also that of Windows. */
function textOf(bytes: Buffer): string {
  return bytes.toString("utf8").replace(/\r?\n$/, "");
}

/** Where the last lines begin, and how many there are. What comes before the first line break may be half a line. */
function lastLines(
  bytes: Buffer,
  { lines, isFinished, isWhole }: { lines: number; isFinished: boolean; isWhole: boolean },
): { begin: number; count: number } {
  // The last line of a finished file may lack its line break. One of the file being written is no line yet.
  const isTorn = isFinished && bytes.length > 0 && bytes.at(-1) !== LINE_BREAK;
  let end = isTorn ? bytes.length : bytes.lastIndexOf(LINE_BREAK);
  let begin = isTorn ? bytes.length : end + 1;
  let count = 0;
  while (end >= 0 && count < lines) {
    const before = end === 0 ? -1 : bytes.lastIndexOf(LINE_BREAK, end - 1);
    if (before === -1 && !isWhole) break;
    begin = before + 1;
    end = before;
    count++;
  }
  return { begin, count };
}

async function readEnd(
  directory: string,
  number: number,
  bytesMax: number,
): Promise<{ bytes: Buffer; offset: number } | undefined> {
  const handle = await openFile(directory, number);
  if (!handle) return undefined;
  try {
    const { size } = await handle.stat();
    const offset = Math.max(0, size - bytesMax);
    const { buffer, bytesRead } = await handle.read(
      Buffer.alloc(size - offset),
      0,
      size - offset,
      offset,
    );
    return { bytes: buffer.subarray(0, bytesRead), offset };
  } finally {
    await handle.close();
  }
}

/** `undefined`: it was rotated away a moment ago. */
async function openFile(directory: string, number: number): Promise<FileHandle | undefined> {
  return open(logFilePath(directory, number), "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}
