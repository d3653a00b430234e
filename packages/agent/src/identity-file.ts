import { randomUUID } from "node:crypto";
import { link, mkdir, open, unlink } from "node:fs/promises";
import { join } from "node:path";

export const KEY_FILE = "node.key";

/** The key is missing, open to others, or no key: a person has to look. No message quotes the file. */
export class IdentityError extends Error {
  override readonly name = "IdentityError";
}

/** The key of this data directory. The first process to ask makes it; all others, and all later ones, get that. */
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
      `${path} is not an ed25519 key in PEM form. Put it back from a copy; or move it away, and the node-unit ` +
        "makes a new key and with it has a new address.",
    );
  return key;
}

/** More than any key. A log file in the wrong place is not read whole. */
const KEY_FILE_BYTES_MAX = 4_096;
const OTHERS = 0o077;

async function readKeyFile(path: string): Promise<string | undefined> {
  const file = await open(path, "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw unusable(path, error);
  });
  if (!file) return undefined;
  try {
    // Asked of the open file, not of its name: what is checked is what is read.
    const { mode, size } = await file.stat();
    if ((mode & OTHERS) !== 0)
      throw new IdentityError(
        `${path} is open to other users of this machine (mode ${octal(mode)}). Whoever has read it can be this ` +
          `node-unit. If nobody has: chmod 600 ${path}`,
      );
    return size > KEY_FILE_BYTES_MAX ? "" : await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Written beside and linked into place: the name either does not exist or is a whole key on disk, and of two
 * processes that start at once only one makes it. A rename would put the second key over the first.
 */
async function createKeyFile(path: string, directory: string, create: () => string): Promise<void> {
  const beside = `${path}.${randomUUID()}`;
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await writeDurably(beside, create());
    await link(beside, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    await syncDirectory(directory);
  } catch (error) {
    throw unusable(path, error as Error);
  } finally {
    await unlink(beside).catch(() => {});
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

/** The link itself must survive a power cut, or the node-unit would come back as somebody else. */
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
  new IdentityError(`the key file ${path} cannot be used: ${message}`);
