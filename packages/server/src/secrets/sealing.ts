import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";

/** A key of `secret_key_file`. */
export interface SecretKey {
  id: string;
  bytes: Buffer;
}

/** What a value is bound to: a value copied to another row by SQL does not decrypt. */
export interface SecretIdentity {
  tenant: string;
  name: string;
  version: number;
}

export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = "aes-256-gcm";

/** Names a key without revealing anything of it. */
export const keyIdOf = (bytes: Buffer): string =>
  createHash("sha256").update("tenure-secret-key-id:").update(bytes).digest("hex").slice(0, 12);

/** Encrypts a value: the nonce, the ciphertext and the tag. */
export function seal(value: string, identity: SecretIdentity, { bytes }: SecretKey): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, bytes, nonce).setAAD(associatedData(identity));
  const ciphertext = Buffer.concat([cipher.update(value, "utf8"), cipher.final()]);
  return Buffer.concat([nonce, ciphertext, cipher.getAuthTag()]);
}

/** Decrypts a value; `undefined` if it was not encrypted with this key for this identity. */
export function unseal(
  sealed: Buffer,
  identity: SecretIdentity,
  { bytes }: SecretKey,
): string | undefined {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) return undefined;
  const decipher = createDecipheriv(CIPHER, bytes, sealed.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAAD(associatedData(identity)).setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    const plain = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
    return Buffer.concat([plain, decipher.final()]).toString("utf8");
  } catch {
    return undefined;
  }
}

const associatedData = ({ tenant, name, version }: SecretIdentity): Buffer =>
  Buffer.from(JSON.stringify(["tenure-secret-v1", tenant, name, version]));
