import { randomBytes } from "node:crypto";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type DevPointer, devPointerPath, readPrivate } from "@tenure/sdk/dev-token";

/** Credentials of a `tenure dev` for programs and browsers of the same user. */
export interface DevAccess {
  token: string;
  tokenFile: string;
  /** Signs in one browser, once. */
  code: string;
}

const random = (): string => randomBytes(32).toString("base64url");

/** Reads the token of a data directory. Creates a new one if none exists or other users could read it. */
export function openDevAccess(dataDir: string): DevAccess {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const tokenFile = join(dataDir, "dev-token");
  return { token: readToken(tokenFile) ?? createToken(tokenFile), tokenFile, code: random() };
}

function readToken(path: string): string | undefined {
  try {
    return readPrivate(path).trim() || undefined;
  } catch {
    return undefined;
  }
}

function createToken(path: string): string {
  const token = random();
  rmSync(path, { force: true });
  writeFileSync(path, `${token}\n`, { mode: 0o600, flag: "wx" });
  return token;
}

/**
 * Writes the file by which commands of this user find the token for a server URL; removed when this process exits. Returns
 * false if it cannot be written: commands then need the token.
 */
export function writePointer(url: string, { tokenFile }: DevAccess): boolean {
  const path = devPointerPath(url);
  if (path === undefined) return false;
  try {
    const pointer: DevPointer = { pid: process.pid, token_file: tokenFile };
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const temporary = `${path}.${process.pid}`;
    writeFileSync(temporary, JSON.stringify(pointer), { mode: 0o600 });
    renameSync(temporary, path);
    process.once("exit", () => rmSync(path, { force: true }));
    return true;
  } catch {
    return false;
  }
}
