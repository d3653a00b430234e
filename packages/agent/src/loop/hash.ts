/** Of an address, which is a key: as good as all of it, and ten thousand of them are a millisecond less. */
const HASHED_CHARACTERS_MAX = 10;

/** FNV-1a: quick, the same everywhere, and even enough for an order. */
export function hash(text: string, from = 0x811c9dc5): number {
  let value = from;
  for (let at = Math.max(0, text.length - HASHED_CHARACTERS_MAX); at < text.length; at++)
    value = Math.imul(value ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return value;
}
