import { randomUUID } from "node:crypto";
import { readFileSync, renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const BOOT_FILE = "boot_id";
const LINE = /^(\S+) ([0-9a-f-]{36})\n$/;

export interface BootFile {
  /** The last process that registered from this data directory under the same address. */
  readonly former: string | undefined;
  /** This process has registered: from now on it is the former one of the next. */
  registered(): void;
}

/**
 * Remembers which process of this data directory registered last. An agent that has the directory's lock knows that it is over,
 * and names it to the server, which then does not wait until its presence runs out. To be used only under that lock.
 */
export function openBootFile(
  dataDir: string,
  { address, bootId }: { address: string; bootId: string },
): BootFile {
  const path = join(dataDir, BOOT_FILE);
  let isWritten = false;
  return {
    former: readFormer(path, address),
    registered() {
      if (isWritten) return;
      const beside = `${path}.${randomUUID()}`;
      try {
        writeFileSync(beside, `${address} ${bootId}\n`, { mode: 0o600 });
        renameSync(beside, path);
        isWritten = true;
      } catch {
        // On a full disk: the next process waits until this one's presence has run out.
        removeQuietly(beside);
      }
    },
  };
}

/** A file that is missing, unreadable or of another key says nothing. */
function readFormer(path: string, address: string): string | undefined {
  try {
    const [, owner, bootId] = LINE.exec(readFileSync(path, "utf8")) ?? [];
    return owner === address ? bootId : undefined;
  } catch {
    return undefined;
  }
}

function removeQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It was not made.
  }
}
