import { randomUUID } from "node:crypto";
import { link, mkdir, open, unlink } from "node:fs/promises";
import { join } from "node:path";

export const KEY_FILE = "node.key";

/** The key file is unusable, and an operator has to correct it. No message quotes the file. */
export class IdentityError extends Error {
  override readonly name = "IdentityError";
}

/** Reads the key of this data directory; the first process creates it. */
export async function readOrCreateKeyFile<Key>(
  directory: string,
  { create, parse }: { create: () => string; parse: (text: string) => Key | undefined },
): Promise<Key> {
  const path = join(directory, KEY_FILE);
  let text = await readKeyFile(path);
  if (text === undefined) {
    await createKeyFile(path, directory, create);
    text = await readKeyFile(path);
  }
  const key = text === undefined ? undefined : parse(text);
  if (key === undefined)
    throw new IdentityError(
      `${path} is not an ed25519 key in PEM form. Restore it from a copy; or move it away, and the node-unit ` +
        "creates a new key and gets a new address.",
    );
  return key;
}

/** More than any key: a wrong file is not read whole. */
const KEY_FILE_BYTES_MAX = 4_096;
const OTHERS = 0o077;

async function readKeyFile(path: string): Promise<string | undefined> {
  const file = await open(path, "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw unusable(path, error);
  });
  if (!file) return undefined;
  try {
    // Of the open file and not of its path, so that the checked file is the one that is read.
    const { mode, size } = await file.stat();
    if ((mode & OTHERS) !== 0)
      throw new IdentityError(
        `${path} is open to other users of this machine (mode ${octal(mode)}). A user who has read it can act as this ` +
          `node-unit. If no user has: chmod 600 ${path}`,
      );
    return size > KEY_FILE_BYTES_MAX ? "" : await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Writes a temporary file and links it into place: the path either does not exist or is a whole key on disk, and only one
 * of two processes that start at once creates it. A rename would replace the first key by the second.
 */
async function createKeyFile(path: string, directory: string, create: () => string): Promise<void> {
  const temporary = `${path}.${randomUUID()}`;
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await writeDurably(temporary, create());
    await link(temporary, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    await syncDirectory(directory);
  } catch (error) {
    throw unusable(path, error as Error);
  } finally {
    await unlink(temporary).catch(() => {});
  }
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes the link survive a power cut: else the node-unit would come back with another address. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const octal = (mode: number): string => (mode & 0o777).toString(8).padStart(4, "0");

const unusable = (path: string, { message }: Error): IdentityError =>
  new IdentityError(`key file ${path} is unusable: ${message}`);
