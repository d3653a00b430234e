import { type FileHandle, mkdir, open } from "node:fs/promises";
import { listLogFiles, logFilePath, removeOldLogFiles } from "./log-files.ts";

export interface LogLimits {
  fileBytesMax: number;
  filesMax: number;
  /** The delay before a write is retried after one failed. */
  retryAfterMs: number;
  /** How often the writer checks whether its file was deleted. */
  checkEveryMs: number;
}

export const LOG_LIMITS: LogLimits = {
  fileBytesMax: 10 * 1024 * 1024,
  filesMax: 5,
  retryAfterMs: 1_000,
  checkEveryMs: 1_000,
};

/** Appends whole lines to the rotated files of one log. */
export interface LogWriter {
  /**
   * Resolves when the lines are written or dropped. A caller that waits for it before reading on slows the child down
   * instead of filling memory. Never rejects: a full disk ends neither the agent nor the child.
   */
  append(lines: Buffer): Promise<void>;
  /** Lines that could not be written since the log was opened. */
  readonly dropped: number;
  close(): Promise<void>;
}

export interface LogWriterOptions {
  directory: string;
  limits?: LogLimits;
  /** Called after every write. */
  onWritten(): void;
  /** Called for the first of a series of failed writes. */
  onFailed(error: Error): void;
}

export function createLogWriter({
  directory,
  limits = LOG_LIMITS,
  onWritten,
  onFailed,
}: LogWriterOptions): LogWriter {
  let file: OpenFile | undefined;
  let failing: { since: Error; lines: number; nextTryMs: number } | undefined;
  let droppedBefore = 0;
  let queue = Promise.resolve();

  /** Opens a file, by default the newest. */
  async function openFile(wanted?: number): Promise<OpenFile> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const number = wanted ?? (await listLogFiles(directory))[0] ?? 1;
    const handle = await open(logFilePath(directory, number), "a+", 0o600);
    file = { handle, number, bytes: 0, checkedAtMs: performance.now() };
    file.bytes = await completeLastLine(handle);
    return file;
  }

  async function closeFile(): Promise<void> {
    const closing = file;
    file = undefined;
    await closing?.handle.close().catch(() => {});
  }

  async function rotate(number: number): Promise<OpenFile> {
    await closeFile();
    const next = await openFile(number);
    await removeOldLogFiles(directory, limits.filesMax);
    return next;
  }

  async function fileFor(bytes: number): Promise<OpenFile> {
    if (file && performance.now() - file.checkedAtMs > limits.checkEveryMs) {
      file.checkedAtMs = performance.now();
      if ((await file.handle.stat()).nlink === 0) await closeFile();
    }
    const current = file ?? (await openFile());
    const isFull = current.bytes > 0 && current.bytes + bytes > limits.fileBytesMax;
    return isFull ? rotate(current.number + 1) : current;
  }

  async function write(bytes: Buffer): Promise<void> {
    const target = await fileFor(bytes.length);
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await target.handle.write(bytes, done);
      done += bytesWritten;
      target.bytes += bytesWritten;
    }
  }

  async function tryWrite(lines: Buffer): Promise<void> {
    if (failing && performance.now() < failing.nextTryMs) {
      failing.lines += countLines(lines);
      return;
    }
    try {
      if (failing) await write(noteOf(failing));
      droppedBefore += failing?.lines ?? 0;
      failing = undefined;
      await write(lines);
      onWritten();
    } catch (error) {
      await fail(error as Error, countLines(lines));
    }
  }

  async function fail(error: Error, lines: number): Promise<void> {
    // Reopened for the next write: the directory may have been deleted.
    await closeFile();
    if (!failing) onFailed(error);
    failing = {
      since: failing?.since ?? error,
      lines: (failing?.lines ?? 0) + lines,
      nextTryMs: performance.now() + limits.retryAfterMs,
    };
  }

  return {
    append(lines) {
      queue = queue.then(() => tryWrite(lines));
      return queue;
    },
    get dropped() {
      return droppedBefore + (failing?.lines ?? 0);
    },
    async close() {
      await queue;
      await closeFile();
    },
  };
}

interface OpenFile {
  handle: FileHandle;
  number: number;
  bytes: number;
  checkedAtMs: number;
}

/** Ends a line that a failed write or a killed agent left open. Returns the size of the file. */
async function completeLastLine(handle: FileHandle): Promise<number> {
  const { size } = await handle.stat();
  if (size === 0) return 0;
  const last = Buffer.alloc(1);
  await handle.read(last, 0, 1, size - 1);
  if (last[0] === LINE_BREAK) return size;
  await handle.write("\n");
  return size + 1;
}

const noteOf = ({ since, lines }: { since: Error; lines: number }): Buffer =>
  Buffer.from(`[tenure] ${lines} lines were dropped here: ${since.message}\n`);

const LINE_BREAK = 10;

function countLines(lines: Buffer): number {
  let count = 0;
  for (let at = lines.indexOf(LINE_BREAK); at !== -1; at = lines.indexOf(LINE_BREAK, at + 1))
    count++;
  return count;
}
