import { randomUUID } from "node:crypto";
import { readFileSync, renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const BOOT_FILE = "boot_id";
const LINE = /^(\S+) ([0-9a-f-]{36})\n$/;

export interface BootFile {
  /** The boot id of the process that last registered from this data directory under the same address. */
  readonly former: string | undefined;
  /** Records that this process has registered. */
  registered(): void;
}

/**
 * Opens the record of which process of this data directory registered last. Only an agent that holds the directory's lock may
 * use it: it knows that the former process has ended and names it to the server, which then need not wait for its presence
 * to expire.
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
        // Without the file the next process waits until the presence of this one has expired.
        removeQuietly(beside);
      }
    },
  };
}

/** Returns `undefined` if the file is missing, unreadable or of another key. */
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
    // It was not created.
  }
}
