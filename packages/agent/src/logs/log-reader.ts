import { type FileHandle, open } from "node:fs/promises";
import { LINE_BYTES_MAX } from "./line-pump.ts";
import { type LogPosition, listLogFiles, logFilePath } from "./log-files.ts";

export interface LogBlock {
  lines: string[];
  next: LogPosition;
  /** The file of the first position was removed, and lines with it. */
  isSkipping: boolean;
}

/** The size of a read; the longest line fits in it several times. */
const BLOCK_BYTES = 128 * 1024;
const LINE_BREAK = 10;

/**
 * Reads the lines from a position on, across files: at most `linesMax`, and at most `jsonBytesMax` in a message. A position
 * whose file was removed means the oldest line. A line without its line break is not returned yet.
 */
export async function readForward(
  directory: string,
  from: LogPosition,
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
      // At least one line is returned: a position that never advances would be requested again and again.
      if (lines.length > 0 && jsonBytes > limits.jsonBytesMax) return { lines, next, isSkipping };
      lines.push(line);
      next = { number, offset: end };
      if (lines.length >= limits.linesMax) return { lines, next, isSkipping };
    }
  }
  return { lines, next, isSkipping };
}

/** Returns where the last `lines` lines of these files begin, at most `bytesMax` back. `numbers`: newest file first. */
export async function positionOfLast(
  directory: string,
  { numbers, lines, bytesMax }: { numbers: readonly number[]; lines: number; bytesMax: number },
): Promise<LogPosition | undefined> {
  const newest = (await listLogFiles(directory))[0];
  let position: LogPosition | undefined;
  let linesLeft = lines;
  let bytesLeft = bytesMax;
  for (const number of numbers) {
    const end = await readEnd(directory, number, bytesLeft);
    if (!end) break;
    const isFinished = number !== newest;
    const last = lastLines(end.bytes, { lines: linesLeft, isFinished, isWhole: end.offset === 0 });
    position = { number, offset: end.offset + last.begin };
    linesLeft -= last.count;
    bytesLeft -= end.bytes.length - last.begin;
    if (position.offset > 0 || linesLeft <= 0 || bytesLeft <= 0) break;
  }
  return position;
}

/** The size of a line in a message, where a control character takes six bytes. */
export const jsonBytesOf = (line: string): number => Buffer.byteLength(JSON.stringify(line)) + 1;

async function* linesOf(
  directory: string,
  { number, offset }: LogPosition,
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

/** Yields the ends of the lines in a block. A line that is too long is split; `isLast` ends an open line. */
function* lineEnds(block: Buffer, isLast: boolean): Generator<number> {
  for (let begin = 0; begin < block.length; ) {
    const found = block.indexOf(LINE_BREAK, begin) + 1;
    const end = found === 0 ? block.length : found;
    // The line break itself may be beyond the limit.
    if (end - begin > LINE_BYTES_MAX + 1) begin += wholeCharacters(block, begin, LINE_BYTES_MAX);
    else if (found > 0 || isLast) begin = end;
    else return;
    yield begin;
  }
}

/** Returns `bytes`, or up to three fewer, so that no character is split. */
function wholeCharacters(block: Buffer, begin: number, bytes: number): number {
  for (let fewer = 0; fewer < 4; fewer++)
    if (((block[begin + bytes - fewer] ?? 0) & 0xc0) !== 0x80) return bytes - fewer;
  return bytes;
}

/** Decodes a line without its line break. Bytes that are no UTF-8 are replaced. */
function textOf(bytes: Buffer): string {
  return bytes.toString("utf8").replace(/\r?\n$/, "");
}

/** Finds the last lines. Unless `isWhole`, the bytes before the first line break may be half a line. */
function lastLines(
  bytes: Buffer,
  { lines, isFinished, isWhole }: { lines: number; isFinished: boolean; isWhole: boolean },
): { begin: number; count: number } {
  // The last line of a finished file may lack its line break; in the file being written it is no line yet.
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

/** Returns `undefined` if the file was removed meanwhile. */
async function openFile(directory: string, number: number): Promise<FileHandle | undefined> {
  return open(logFilePath(directory, number), "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}
