import { createPublicKey, verify } from "node:crypto";
import { decodeBase58 } from "@tenure/protocol";

/** The DER head of an ed25519 public key; the 32 bytes of the key follow it. */
const SPKI_HEAD = Buffer.from("302a300506032b6570032100", "hex");

/**
 * The y coordinates of the points of order 1, 2, 4 and 8, with their encodings beyond the field's prime. Such a key
 * proves nothing: signatures that it accepts can be made without a private key.
 */
const SMALL_ORDER = new Set([
  "00".repeat(32),
  `01${"00".repeat(31)}`,
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  `ec${"ff".repeat(30)}7f`,
  `ed${"ff".repeat(30)}7f`,
  `ee${"ff".repeat(30)}7f`,
]);

/** The highest bit is the sign of x, which changes nothing about the order. */
function isSmallOrder(key: Uint8Array): boolean {
  const y = Buffer.from(key);
  y[31] = (y[31] ?? 0) & 0x7f;
  return SMALL_ORDER.has(y.toString("hex"));
}

/** Whether the key that is the address made this signature. */
export function isSignedBy(address: string, text: string, signature: Buffer): boolean {
  const bytes = decodeBase58(address);
  if (bytes?.length !== 32 || signature.length !== 64 || isSmallOrder(bytes)) return false;
  try {
    const key = createPublicKey({
      key: Buffer.concat([SPKI_HEAD, bytes]),
      format: "der",
      type: "spki",
    });
    return verify(null, Buffer.from(text), key, signature);
  } catch {
    return false; // 32 bytes that are no point of the curve
  }
}
