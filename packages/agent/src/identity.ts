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

/** The identity of this node-unit: its key, and the id of this process. */
export interface NodeIdentity extends NodeKey {
  /** Random per process: another process with the same key has another boot id. */
  bootId: string;
}

/**
 * Loads the key. With name and password it is derived from them, so that a rebuilt machine keeps its address. Otherwise it
 * is a file in the data directory, which is created if it does not exist.
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
  // scrypt needs a little more than 128 × N × r bytes, which is Node's default limit.
  maxmem: 64 * 1024 * 1024,
};

/** Part of the contract: a change would change the address of every node-unit with a password. */
export function deriveSeed({ name, password }: { name: string; password: string }) {
  return new Promise<Buffer>((resolve, reject) =>
    scrypt(password, `tenure-node-v1:${name}`, SEED_BYTES, SCRYPT, (error, seed) =>
      error ? reject(error) : resolve(seed),
    ),
  );
}

/** The PKCS #8 header before the 32 bytes of an ed25519 seed (RFC 8410). Node accepts no bare seed. */
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

/** The raw public key is the end of its SPKI encoding. */
function addressOf(key: KeyObject): string {
  const spki = createPublicKey(key).export({ type: "spki", format: "der" });
  return encodeBase58(spki.subarray(-SEED_BYTES));
}
