import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeBase58, encodeBase58 } from "./base58.ts";

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex, "hex"));

// From the test vectors of Bitcoin Core.
test.each([
  ["", ""],
  ["61", "2g"],
  ["626262", "a3gV"],
  ["73696d706c792061206c6f6e6720737472696e67", "2cFupjhnEsSn59qHXstmK2ffpLv2"],
  ["00eb15231dfceb60925886b67d065299925915aeb172c06647", "1NS17iag9jJgTHD1VXjvLCEnZuQ3rJDE9L"],
  ["00000000000000000000", "1111111111"],
])("%s is %s", (hex, text) => {
  expect(encodeBase58(bytes(hex))).toBe(text);
  expect(decodeBase58(text)).toEqual(bytes(hex));
});

test("every byte array comes back as it was, leading zeros included", () => {
  const anyBytes = fc.tuple(fc.nat(4), fc.uint8Array({ maxLength: 64 }));
  fc.assert(
    fc.property(anyBytes, ([zeros, rest]) => {
      const original = Uint8Array.from([...new Array<number>(zeros).fill(0), ...rest]);
      expect(decodeBase58(encodeBase58(original))).toEqual(original);
    }),
  );
});

test.each(["0", "O", "I", "l", "2g ", "é", "😀", "1".repeat(129)])("%j is no base58", (text) => {
  expect(decodeBase58(text)).toBeUndefined();
});
