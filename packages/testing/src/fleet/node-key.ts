import { generateKeyPairSync, sign } from "node:crypto";
import { encodeBase58 } from "@tenure/protocol";

export interface TestNodeKey {
  address: string;
  signBytes(bytes: Uint8Array): Uint8Array;
}

/** A node's key that lives as long as the test. */
export function createTestNodeKey(): TestNodeKey {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  return { address: encodeBase58(raw), signBytes: (bytes) => sign(null, bytes, privateKey) };
}
