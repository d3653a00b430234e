import { randomBytes } from "node:crypto";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type DevPointer, devPointerPath, readPrivate } from "@tenure/sdk/dev-token";

/** How programs and the browser of this user, and of no other, get into a `tenure dev`. */
export interface DevAccess {
  token: string;
  tokenFile: string;
  /** Signs one browser in, once. */
  code: string;
}

const random = (): string => randomBytes(32).toString("base64url");

/** The token of a data directory, made when there is none that only this user could have read. */
export function openDevAccess(dataDir: string): DevAccess {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const tokenFile = join(dataDir, "dev-token");
  return { token: readToken(tokenFile) ?? makeToken(tokenFile), tokenFile, code: random() };
}

function readToken(path: string): string | undefined {
  try {
    return readPrivate(path).trim() || undefined;
  } catch {
    return undefined;
  }
}

function makeToken(path: string): string {
  const token = random();
  rmSync(path, { force: true });
  writeFileSync(path, `${token}\n`, { mode: 0o600, flag: "wx" });
  return token;
}

/**
 * Lets the commands of this user find the token by the server's URL, for as long as this process runs. Returns false where
 * the pointer cannot be written; the token must then be given by hand.
 */
export function leavePointer(url: string, { tokenFile }: DevAccess): boolean {
  const path = devPointerPath(url);
  if (path === undefined) return false;
  try {
    const pointer: DevPointer = { pid: process.pid, token_file: tokenFile };
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const beside = `${path}.${process.pid}`;
    writeFileSync(beside, JSON.stringify(pointer), { mode: 0o600 });
    renameSync(beside, path);
    process.once("exit", () => rmSync(path, { force: true }));
    return true;
  } catch {
    return false;
  }
}
