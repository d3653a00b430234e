import { execFile } from "node:child_process";
import { chownSync, closeSync, constants, openSync, rmSync, statSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { promisify } from "node:util";
import type { Owner } from "../../run-as.ts";

/** Both outputs of a child: what we read, and what the child gets as its descriptors 1 and 2. */
export interface OutputPipes {
  stdout: Readable;
  stderr: Readable;
  childFds: readonly [number, number];
  /** For when the child has its own copies, or there is none: only then do the pipes end with it. */
  closeChildEnds(): void;
  destroy(): void;
}

/**
 * Real pipes, by way of names in the file system. Those Node makes are sockets, and a socket cannot be opened again by
 * its name: `echo … > /dev/stderr`, which shell scripts do, fails with "No such device or address". `undefined` where
 * the machine or the file system has no named pipes. They belong to the child's user, who could not open them otherwise.
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

/** Made once per deployment and kept. */
async function makePipes(paths: readonly string[]): Promise<void> {
  const missing = paths.filter((path) => !statSync(path, { throwIfNoEntry: false })?.isFIFO());
  if (missing.length > 0) await promisify(execFile)("mkfifo", ["-m", "600", ...missing]);
}

function openPipe(path: string): { stream: Readable; childFd: number } {
  // Reading first and without waiting: each end waits for the other unless it is told not to.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const stream = new Socket({ fd, readable: true, writable: false });
  try {
    return { stream, childFd: openSync(path, constants.O_WRONLY) };
  } catch (error) {
    stream.destroy();
    throw error;
  }
}
