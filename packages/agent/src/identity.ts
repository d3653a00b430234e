import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomUUID,
  type ScryptOptions,
  scrypt,
  sign,
} from "node:crypto";
import { encodeBase58 } from "@tenure/protocol";
import type { NodeKey } from "@tenure/sdk";
import { readOrCreateKeyFile } from "./identity-file.ts";

/** Who this node-unit is: a key that outlives it, and a boot that does not. */
export interface NodeIdentity extends NodeKey {
  /** Random, once per process: another process with the same key is another boot. */
  bootId: string;
}

/**
 * With name and password the key is made from them, so that a rebuilt machine keeps its address. Without, it is in
 * a file of the data directory, made when there is none.
 */
export async function loadIdentity({
  name,
  password,
  data_dir,
}: {
  name?: string | undefined;
  password?: string | undefined;
  data_dir: string;
}): Promise<NodeIdentity> {
  const key =
    name !== undefined && password !== undefined
      ? keyOfSeed(await deriveSeed({ name, password }))
      : await readOrCreateKeyFile(data_dir, {
          create: () => pemOf(generateKeyPairSync("ed25519").privateKey),
          parse: keyOfPem,
        });
  return {
    address: addressOf(key),
    bootId: randomUUID(),
    sign: async (bytes) => sign(null, bytes, key),
  };
}

const SEED_BYTES = 32;
const SCRYPT: ScryptOptions = {
  N: 2 ** 15,
  r: 8,
  p: 1,
  // It needs 128 × N × r bytes and a little; Node's own limit is that product exactly, and refuses.
  maxmem: 64 * 1024 * 1024,
};

/** Part of the contract: another value is another address for every node-unit with a password. */
export function deriveSeed({ name, password }: { name: string; password: string }) {
  return new Promise<Buffer>((resolve, reject) =>
    scrypt(password, `tenure-node-v1:${name}`, SEED_BYTES, SCRYPT, (error, seed) =>
      error ? reject(error) : resolve(seed),
    ),
  );
}

/** What stands before the 32 bytes of an ed25519 seed in PKCS #8 (RFC 8410). Node takes no bare seed. */
const PKCS8_PREFIX = Buffer.from("302e020100300506032b657004220420", "hex");

function keyOfSeed(seed: Buffer): KeyObject {
  return createPrivateKey({
    key: Buffer.concat([PKCS8_PREFIX, seed]),
    format: "der",
    type: "pkcs8",
  });
}

function pemOf(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function keyOfPem(pem: string): KeyObject | undefined {
  try {
    const key = createPrivateKey(pem);
    return key.asymmetricKeyType === "ed25519" ? key : undefined;
  } catch {
    return undefined;
  }
}

/** The raw public key is the end of its SPKI form. */
function addressOf(key: KeyObject): string {
  const spki = createPublicKey(key).export({ type: "spki", format: "der" });
  return encodeBase58(spki.subarray(-SEED_BYTES));
}
