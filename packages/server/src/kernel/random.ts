import { randomBytes } from "node:crypto";

/** Where chance comes from. Tests and the simulation pass a seeded one and get the same run again. */
export interface Random {
  bytes(count: number): Buffer;
  /** At least 0, below 1. */
  fraction(): number;
}

export const systemRandom: Random = {
  bytes: fromPool,
  fraction: () => Math.random(),
};

const POOL_BYTES = 4_096;
let pool = Buffer.alloc(0);

/** Asking the system for 16 bytes costs as much as for some thousand. Every byte is given away once. */
function fromPool(count: number): Buffer {
  if (count > pool.length) pool = randomBytes(Math.max(count, POOL_BYTES));
  const bytes = pool.subarray(0, count);
  pool = pool.subarray(count);
  return bytes;
}

/** A UUID (v7): 48 bits of wall time, then chance, so that ids made later sort later. */
export function uuid7(random: Random, wallMs: number): string {
  const bytes = random.bytes(16);
  bytes.writeUIntBE(wallMs, 0, 6);
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const hex = bytes.toString("hex");
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join("-");
}

/** `ms` give or take a fifth, so that many processes started together do not stay in step. */
export function jittered(ms: number, random: Random): number {
  return ms * (0.8 + 0.4 * random.fraction());
}

/** The same things in an order of chance. */
export function shuffled<T>(things: readonly T[], random: Random): T[] {
  return things
    .map((thing) => ({ thing, at: random.fraction() }))
    .sort((a, b) => a.at - b.at)
    .map(({ thing }) => thing);
}
