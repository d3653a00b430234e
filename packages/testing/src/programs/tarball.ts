import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";

export interface TarFile {
  text: string;
  mode?: number;
}

/** A package as a registry serves it: a gzipped ustar archive with everything below `package/`. */
export function packTarball(files: Readonly<Record<string, string | TarFile>>): Buffer {
  const entries = Object.entries(files).map(([path, file]) =>
    entryOf(`package/${path}`, typeof file === "string" ? { text: file } : file),
  );
  return gzipSync(Buffer.concat([...entries, Buffer.alloc(2 * BLOCK_BYTES)]));
}

export const integrityOf = (tarball: Buffer): string =>
  `sha512-${createHash("sha512").update(tarball).digest("base64")}`;

const BLOCK_BYTES = 512;

function entryOf(path: string, { text, mode = 0o644 }: TarFile): Buffer {
  const body = Buffer.from(text);
  const padding = Buffer.alloc((BLOCK_BYTES - (body.length % BLOCK_BYTES)) % BLOCK_BYTES);
  return Buffer.concat([headerOf(path, { mode, bytes: body.length }), body, padding]);
}

function headerOf(path: string, { mode, bytes }: { mode: number; bytes: number }): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, digits: number): string =>
    `${value.toString(8).padStart(digits, "0")}\0`;
  header.write(path, 0, 100);
  header.write(octal(mode, 7), 100);
  header.write(octal(0, 7), 108);
  header.write(octal(0, 7), 116);
  header.write(octal(bytes, 11), 124);
  header.write(octal(0, 11), 136);
  header.write(" ".repeat(8), 148); // the checksum counts as spaces while it is made
  header.write("0", 156);
  header.write("ustar\x0000", 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}
