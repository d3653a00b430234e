/** DER (X.690), as far as a certificate needs it: written only, never parsed. */

export function sequence(...parts: Uint8Array[]): Buffer {
  return value(0x30, ...parts);
}

export function set(...parts: Uint8Array[]): Buffer {
  return value(0x31, ...parts);
}

/** A context-specific tag around whole values, as in `[0] EXPLICIT`. */
export function explicit(tag: number, ...parts: Uint8Array[]): Buffer {
  return value(0xa0 | tag, ...parts);
}

/** A context-specific tag in place of the value's own, for values of bytes. */
export function implicit(tag: number, bytes: Uint8Array): Buffer {
  return value(0x80 | tag, bytes);
}

/** A positive integer: DER would read a set first bit as a sign. */
export function integer(bytes: Uint8Array): Buffer {
  return value(0x02, ...(((bytes[0] ?? 0) & 0x80) !== 0 ? [Buffer.of(0)] : []), bytes);
}

export function boolean(isTrue: boolean): Buffer {
  return value(0x01, Buffer.of(isTrue ? 0xff : 0));
}

export function bitString(bytes: Uint8Array, unusedBits = 0): Buffer {
  return value(0x03, Buffer.of(unusedBits), bytes);
}

export function octetString(bytes: Uint8Array): Buffer {
  return value(0x04, bytes);
}

export function utf8(text: string): Buffer {
  return value(0x0c, Buffer.from(text, "utf8"));
}

/** A point in time: with four digits for the year from 2050 on, with two before (RFC 5280). */
export function time(at: Date): Buffer {
  const digits = at.toISOString().replace(/\.\d+|[-:T]/g, "");
  return at.getUTCFullYear() < 2050
    ? value(0x17, Buffer.from(digits.slice(2), "latin1"))
    : value(0x18, Buffer.from(digits, "latin1"));
}

export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  return value(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]));
}

function base128(number: number): number[] {
  const digits = [number & 0x7f];
  for (let left = number >>> 7; left > 0; left >>>= 7) digits.unshift((left & 0x7f) | 0x80);
  return digits;
}

function value(tag: number, ...parts: Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.of(tag), length(content.length), content]);
}

function length(bytes: number): Buffer {
  if (bytes < 0x80) return Buffer.of(bytes);
  const digits: number[] = [];
  for (let left = bytes; left > 0; left >>>= 8) digits.unshift(left & 0xff);
  return Buffer.of(0x80 | digits.length, ...digits);
}
