import { encodeBase58 } from "@tenure/protocol";

/** The identity of a node. `sign` is a function, so that the key may stay in a file, a browser or a device. */
export interface NodeKey {
  /** The ed25519 public key in base58. */
  address: string;
  /** The ed25519 signature, 64 bytes. */
  sign(bytes: Uint8Array): Promise<Uint8Array>;
}

/** A key that lives as long as the process. It uses WebCrypto, which Node and browsers have. */
export async function createEphemeralKey(): Promise<NodeKey> {
  const { subtle } = globalThis.crypto;
  const pair = await subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const { publicKey, privateKey } = pair as CryptoKeyPair;
  const raw = await subtle.exportKey("raw", publicKey);
  return {
    address: encodeBase58(new Uint8Array(raw)),
    sign: async (bytes) => new Uint8Array(await subtle.sign("Ed25519", privateKey, bytes)),
  };
}

interface CryptoKeyPair {
  publicKey: Awaited<ReturnType<typeof globalThis.crypto.subtle.importKey>>;
  privateKey: Awaited<ReturnType<typeof globalThis.crypto.subtle.importKey>>;
}
