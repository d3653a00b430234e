import { createPublicKey, verify } from "node:crypto";
import { decodeBase58 } from "@tenure/protocol";

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
    // As a JWK: OpenSSL decodes DER in 0.3 to 1 ms, and a fleet that comes back signs thousands of times at once.
    const x = Buffer.from(bytes).toString("base64url");
    const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
    return verify(null, Buffer.from(text), key, signature);
  } catch {
    return false; // 32 bytes that are no point of the curve
  }
}
