import { randomUUID } from "node:crypto";
import { mkdir, open, rename, unlink } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";

/** The token of this node, and the secret of an enrolment that has no answer yet. */
export const TOKEN_FILE = "node.token";
const JOINING_FILE = "node.token.joining";

const StoredToken = z.object({
  secret: z.string().min(1),
  /** The token is good for this address only. */
  address: z.string(),
  /** The join token that it came from. */
  join_sha256: z.string(),
  /** The name that the join token gives the node. */
  name: z.string().optional(),
});
export type StoredToken = z.infer<typeof StoredToken>;

const OTHERS = 0o077;
const BYTES_MAX = 4_096;

/** The token file is unusable, and an operator has to correct it. No message quotes the file. */
export class TokenFileError extends Error {
  override readonly name = "TokenFileError";
}

export interface TokenFiles {
  read(): Promise<StoredToken | undefined>;
  readJoining(): Promise<StoredToken | undefined>;
  writeJoining(token: StoredToken): Promise<void>;
  /** Makes it the token of this node. */
  write(token: StoredToken): Promise<void>;
}

/** The token files of a data directory. Files of another key count as missing. */
export function openTokenFiles(directory: string, address: string): TokenFiles {
  async function readOwn(name: string): Promise<StoredToken | undefined> {
    const token = await read(join(directory, name));
    return token?.address === address ? token : undefined;
  }
  const writeTo = (name: string, token: StoredToken) => write(directory, name, token);
  return {
    read: () => readOwn(TOKEN_FILE),
    readJoining: () => readOwn(JOINING_FILE),
    writeJoining: (token) => writeTo(JOINING_FILE, token),
    async write(token) {
      await writeTo(TOKEN_FILE, token);
      await unlink(join(directory, JOINING_FILE)).catch(() => {});
    },
  };
}

async function read(path: string): Promise<StoredToken | undefined> {
  const file = await open(path, "r").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw new TokenFileError(`token file ${path} cannot be read (${error.code})`);
  });
  if (!file) return undefined;
  try {
    const { mode, size } = await file.stat();
    if ((mode & OTHERS) !== 0)
      throw new TokenFileError(
        `${path} is open to other users of this machine. Revoke the token if one may have read it; else: chmod 600 ${path}`,
      );
    const parsed = StoredToken.safeParse(
      size > BYTES_MAX ? "" : parse(await file.readFile("utf8")),
    );
    if (parsed.success) return parsed.data;
    throw new TokenFileError(
      `${path} is not a token file. Restore it from a copy, or move it away and use a new join token`,
    );
  } finally {
    await file.close();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** On disk before it is in place: a server may have the hash of a secret only when the node has the secret. */
async function write(directory: string, name: string, token: StoredToken): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const temporary = join(directory, `${name}.${randomUUID()}`);
  const file = await open(temporary, "wx", 0o600);
  try {
    await file.writeFile(`${JSON.stringify(token)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, join(directory, name));
  const handle = await open(directory, "r");
  await handle.sync().finally(() => handle.close());
}
