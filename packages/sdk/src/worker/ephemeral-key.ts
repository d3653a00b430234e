import { encodeBase58 } from "@tenure/protocol";
import type { NodeKey } from "./node-connection.ts";

/** A key that lives as long as the process. WebCrypto, so that it works wherever the SDK does. */
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
