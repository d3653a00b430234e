/** Redis' Lua unpacks a few thousand values at most. */
const BATCH_MAX = 1_000;

/** Splits a list into batches that one script takes. */
export function inBatches<T>(things: readonly T[], batchMax = BATCH_MAX): T[][] {
  const count = Math.ceil(things.length / batchMax);
  return Array.from({ length: count }, (_, at) => things.slice(at * batchMax, (at + 1) * batchMax));
}

/** A list as scripts take it: words with a space between them. The empty text is no word. */
export const split = (text: string): string[] => (text === "" ? [] : text.split(" "));
