import { randomBytes } from "node:crypto";
import { v7 } from "uuid";

/** A source of randomness. Tests and the simulation pass a seeded one, so that a run can be repeated. */
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

/** Reading 16 bytes from the system costs as much as reading thousands. Every byte is used once. */
function fromPool(count: number): Buffer {
  if (count > pool.length) pool = randomBytes(Math.max(count, POOL_BYTES));
  const bytes = pool.subarray(0, count);
  pool = pool.subarray(count);
  return bytes;
}

/** A version 7 UUID: 48 bits of wall time, then random bits, so that later ids sort later. */
export const uuid7 = (random: Random, wallMs: number): string =>
  v7({ random: random.bytes(16), msecs: wallMs });

/** The same things in random order. */
export function shuffled<T>(things: readonly T[], random: Random): T[] {
  return things
    .map((thing) => ({ thing, at: random.fraction() }))
    .sort((a, b) => a.at - b.at)
    .map(({ thing }) => thing);
}
