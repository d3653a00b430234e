export interface Seeded {
  /** At least 0, below 1. */
  fraction(): number;
  /** At least `min`, below `max`. */
  between(min: number, max: number): number;
}

/** mulberry32: small, fast, and the same on every machine. */
export function createSeeded(seed: number): Seeded {
  let state = seed >>> 0;
  function fraction(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
  return { fraction, between: (min, max) => min + fraction() * (max - min) };
}

/** A number for a name, so that each name can have a seed of its own. */
export function hash(text: string): number {
  let value = 0;
  for (const letter of text) value = (Math.imul(value, 31) + letter.charCodeAt(0)) | 0;
  return value;
}
