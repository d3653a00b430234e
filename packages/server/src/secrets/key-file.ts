import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { KEY_BYTES, keyIdOf, type SecretKey } from "./sealing.ts";

const OTHERS = 0o007;
/** A changed file is in use after so long at the latest. */
const REREAD_MS = 1_000;

/** The keys of this instance: the first one encrypts, all of them decrypt. */
export interface Keyring {
  /** Empty without `secret_key_file`. */
  keys(): readonly SecretKey[];
}

/**
 * Reads `secret_key_file` and follows its changes, so that a key is changed without a restart. Throws when it cannot be read
 * at the start. Later a bad file is logged, and the former keys stay in use.
 */
export function openKeyring(path: string, { clock, log }: { clock: Clock; log: Log }): Keyring {
  if (path === "") return { keys: () => [] };
  let { keys, mark } = readKeyFile(path);
  let readMs = clock.monotonicMs();
  let problem: string | undefined;

  function reread(): void {
    try {
      const read = readKeyFile(path, mark);
      problem = undefined;
      if (read.mark === mark) return;
      ({ keys, mark } = read);
      const keyIds = keys.map(({ id }) => id);
      log.info({ event: "secrets.keys-read", keyIds }, "read the changed secret_key_file");
    } catch (error) {
      const { message } = error as Error;
      if (message !== problem)
        log.error(
          { event: "secrets.keys-not-read", error },
          "could not read the changed secret_key_file; the former keys stay in use",
        );
      problem = message;
    }
  }

  return {
    keys() {
      if (clock.monotonicMs() - readMs >= REREAD_MS) {
        readMs = clock.monotonicMs();
        reread();
      }
      return keys;
    },
  };
}

interface KeyFile {
  keys: SecretKey[];
  /** Identifies the content without reading it. */
  mark: string;
}

/** Reads the keys of a file. Returns no keys for a file that still has `known` as its mark. No error quotes the file. */
function readKeyFile(path: string, known?: string): KeyFile {
  const fd = openKeyFile(path);
  try {
    const { mode, mtimeMs, size, ino } = fstatSync(fd);
    if ((mode & OTHERS) !== 0)
      throw new Error("server.secret_key_file: every user can read the file; chmod 600 it");
    const mark = [mtimeMs, size, ino].join(" ");
    if (mark === known) return { keys: [], mark };
    return { keys: parseKeys(readFileSync(fd, "utf8")), mark };
  } finally {
    closeSync(fd);
  }
}

function openKeyFile(path: string): number {
  try {
    return openSync(path, "r");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(`server.secret_key_file: the file cannot be read (${code})`);
  }
}

/** One key per line, in hex or base64. Empty lines and those that begin with `#` are ignored. */
function parseKeys(text: string): SecretKey[] {
  const keys = text.split("\n").flatMap((raw, index) => {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) return [];
    const bytes = parseKey(line);
    if (bytes) return [{ id: keyIdOf(bytes), bytes }];
    throw new Error(
      `server.secret_key_file: line ${index + 1} must be ${KEY_BYTES} bytes in hex or base64; make one with: openssl rand -base64 ${KEY_BYTES}`,
    );
  });
  if (keys.length === 0)
    throw new Error(
      `server.secret_key_file: the file has no key; make one with: openssl rand -base64 ${KEY_BYTES}`,
    );
  return keys;
}

function parseKey(line: string): Buffer | undefined {
  if (/^[0-9a-f]{64}$/i.test(line)) return Buffer.from(line, "hex");
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(line)) return undefined;
  const bytes = Buffer.from(line, "base64");
  return bytes.length === KEY_BYTES ? bytes : undefined;
}
