import { execFile } from "node:child_process";
import { chownSync, closeSync, constants, openSync, rmSync, statSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { promisify } from "node:util";
import type { Owner } from "../../run-as.ts";

/** The outputs of a child: the ends that the agent reads, and the child's descriptors 1 and 2. */
export interface OutputPipes {
  stdout: Readable;
  stderr: Readable;
  childFds: readonly [number, number];
  /** To be called when the child has inherited them, or was not started: else the pipes would not end with it. */
  closeChildEnds(): void;
  destroy(): void;
}

/**
 * Opens named pipes for a child. The pipes that Node creates are sockets, and a socket cannot be opened by its name: the
 * usual `echo … > /dev/stderr` of shell scripts fails with "No such device or address". Returns `undefined` if the machine or
 * the file system has no named pipes. They belong to the child's user, who could not open them otherwise.
 */
export async function openPipes(
  path: string,
  owner: Owner | undefined,
): Promise<OutputPipes | undefined> {
  try {
    const [out, err] = [`${path}.out`, `${path}.err`] as const;
    await makePipes([out, err]);
    if (owner) for (const pipe of [out, err]) chownSync(pipe, owner.uid, owner.gid);
    const stdout = openPipe(out);
    const stderr = openPipe(err);
    return {
      stdout: stdout.stream,
      stderr: stderr.stream,
      childFds: [stdout.childFd, stderr.childFd],
      closeChildEnds() {
        closeSync(stdout.childFd);
        closeSync(stderr.childFd);
      },
      destroy() {
        stdout.stream.destroy();
        stderr.stream.destroy();
      },
    };
  } catch {
    return undefined;
  }
}

export function removePipes(path: string): void {
  for (const end of ["out", "err"]) rmSync(`${path}.${end}`, { force: true });
}

/** Creates the pipes that do not exist; they are kept for the next child. */
async function makePipes(paths: readonly string[]): Promise<void> {
  const missing = paths.filter((path) => !statSync(path, { throwIfNoEntry: false })?.isFIFO());
  if (missing.length > 0) await promisify(execFile)("mkfifo", ["-m", "600", ...missing]);
}

function openPipe(path: string): { stream: Readable; childFd: number } {
  // The reading end first, and non-blocking: each end would wait for the other.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const stream = new Socket({ fd, readable: true, writable: false });
  try {
    return { stream, childFd: openSync(path, constants.O_WRONLY) };
  } catch (error) {
    stream.destroy();
    throw error;
  }
}
