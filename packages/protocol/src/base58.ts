const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** Longer input is refused: the algorithm is quadratic, and our longest use is a 64-byte signature. */
const BASE58_LENGTH_MAX = 128;

/** Bitcoin's base58. Every byte array has exactly one text, so two texts never name the same key. */
export function encodeBase58(bytes: Uint8Array): string {
  const zeros = countLeading(bytes, 0);
  const digits = changeBase(bytes.subarray(zeros), { from: 256, to: 58 });
  return "1".repeat(zeros) + digits.map((digit) => ALPHABET.charAt(digit)).join("");
}

/** The bytes, or `undefined` when `text` is no base58. */
export function decodeBase58(text: string): Uint8Array | undefined {
  if (text.length > BASE58_LENGTH_MAX) return undefined;
  const digits = Array.from(text, (character) => ALPHABET.indexOf(character));
  if (digits.includes(-1)) return undefined;
  const zeros = countLeading(digits, 0);
  const bytes = changeBase(digits.slice(zeros), { from: 58, to: 256 });
  return Uint8Array.from([...new Array<number>(zeros).fill(0), ...bytes]);
}

/** Long division, most significant digit first on both sides. */
function changeBase(digits: Iterable<number>, { from, to }: { from: number; to: number }) {
  const result: number[] = []; // least significant first while we work
  for (const digit of digits) {
    let carry = digit;
    for (let index = 0; index < result.length; index++) {
      carry += (result[index] ?? 0) * from;
      result[index] = carry % to;
      carry = Math.floor(carry / to);
    }
    for (; carry > 0; carry = Math.floor(carry / to)) result.push(carry % to);
  }
  return result.reverse();
}

function countLeading(digits: ArrayLike<number>, value: number): number {
  let count = 0;
  while (count < digits.length && digits[count] === value) count++;
  return count;
}
