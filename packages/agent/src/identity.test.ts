import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { writeFileSync } from "node:fs";
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BootId, challengeText, decodeBase58, NodeAddress } from "@tenure/protocol";
import { test as base, describe, expect } from "vitest";
import { deriveSeed, loadIdentity, type NodeIdentity } from "./identity.ts";
import { IdentityError, KEY_FILE, readOrCreateKeyFile } from "./identity-file.ts";

const test = base.extend<{ data_dir: string }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads the pattern to see what is needed
  data_dir: async ({}, use) => {
    const scratch = await mkdtemp(join(tmpdir(), "tenure-identity-"));
    await use(join(scratch, "data"));
    await rm(scratch, { recursive: true });
  },
});

// Computed once with Python's hashlib.scrypt and its cryptography package, and never to change: it is the
// address of an existing machine.
const FROZEN = {
  name: "rack-7",
  password: "correct horse battery staple",
  seed: "9a71c8c4bbf2d4ac449a9cfae54b42b85a0c0249e0aa41f8d4a07157caecfb9c",
  address: "8nKUsbvGBzsdoCQAqzAxg45iZ3pUcRGEFzwHgeoCY9St",
  signature:
    "0ShujBUx8rNmVaxIHv9rWSc9TEyUQ2EAvtxN5BpinQguG3g8Px1U7qwIAtTQ6n25a0DLoQTW07K7U+H9GrsGDA==",
};

describe("a node-unit with name and password", () => {
  test("has an address that never changes", async ({ data_dir }) => {
    const seed = await deriveSeed(FROZEN);
    const { address, sign } = await loadIdentity({ ...FROZEN, data_dir });
    const challenge = challengeText({
      server_id: "instance-1",
      nonce: "bm9uY2UtMTIzNDU2Nzg",
      address,
      boot_id: "018f2b5e-7c3a-7000-8000-000000000001",
    });

    expect(seed.toString("hex")).toBe(FROZEN.seed);
    expect(address).toBe(FROZEN.address);
    expect(toBase64(await sign(Buffer.from(challenge)))).toBe(FROZEN.signature);
  });

  test("leaves no key behind on the machine", async ({ data_dir }) => {
    await loadIdentity({ ...FROZEN, data_dir });

    await expect(stat(data_dir)).rejects.toThrow("ENOENT");
  });

  test("has another address with another name or password", async ({ data_dir }) => {
    const others = [
      { ...FROZEN, name: "rack-8" },
      { ...FROZEN, password: "incorrect horse" },
    ];
    const addresses = await Promise.all(
      others.map(async (other) => (await loadIdentity({ ...other, data_dir })).address),
    );

    expect(new Set([FROZEN.address, ...addresses]).size).toBe(3);
  });
});

describe("a node-unit without a password", () => {
  test("creates a key that only its own user can read, and keeps it", async ({ data_dir }) => {
    const first = await loadIdentity({ name: "named-only", data_dir });
    const second = await loadIdentity({ data_dir });

    expect(NodeAddress.safeParse(first.address).success).toBe(true);
    expect(second.address).toBe(first.address);
    expect((await stat(join(data_dir, KEY_FILE))).mode & 0o777).toBe(0o600);
    expect((await stat(data_dir)).mode & 0o777).toBe(0o700);
    expect(await readdir(data_dir)).toEqual([KEY_FILE]);
    expect(await isSignedBy(first, "some bytes")).toBe(true);
  });

  test("has one key, also when many processes start at once", async ({ data_dir }) => {
    const starts = Array.from({ length: 20 }, () => loadIdentity({ data_dir }));
    const identities = await Promise.all(starts);

    expect(new Set(identities.map(({ address }) => address)).size).toBe(1);
    expect(await readdir(data_dir)).toEqual([KEY_FILE]);
  });

  test("uses the key of a process that created it first", async ({ data_dir }) => {
    const mine = await readOrCreateKeyFile(data_dir, {
      create() {
        writeFileSync(join(data_dir, KEY_FILE), "the other's", { mode: 0o600 });
        return "mine";
      },
      parse: (text) => text,
    });

    expect(mine).toBe("the other's");
  });

  test("has another boot id after every start", async ({ data_dir }) => {
    const boots = [await loadIdentity({ data_dir }), await loadIdentity({ data_dir })];

    expect(boots.every(({ bootId }) => BootId.safeParse(bootId).success)).toBe(true);
    expect(boots[0]?.bootId).not.toBe(boots[1]?.bootId);
  });

  test.for([
    "0640",
    "0604",
    "0660",
  ])("refuses a key file with mode %s, which others can read", async (mode, { data_dir }) => {
    await loadIdentity({ data_dir });
    await chmod(join(data_dir, KEY_FILE), mode);

    const failure = await refusalOf(data_dir);
    expect(failure).toMatch(`mode ${mode}`);
    expect(failure).toMatch("chmod 600");
  });

  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
  test.for([
    ["empty", ""],
    ["text", "SECRET-GARBAGE"],
    ["a key of another kind", rsa.export({ type: "pkcs8", format: "pem" }).toString()],
    ["large", "SECRET-GARBAGE".repeat(10_000)],
  ] as const)("refuses a key file that is %s, and does not touch it", async ([, text], {
    data_dir,
  }) => {
    await loadIdentity({ data_dir });
    const path = join(data_dir, KEY_FILE);
    await writeFile(path, text);

    const failure = await refusalOf(data_dir);
    expect(failure).toMatch("not an ed25519 key");
    expect(failure).not.toMatch("SECRET");
    expect(await readFile(path, "utf8")).toBe(text);
  });

  test("is refused with the path of an unusable file", async ({ data_dir }) => {
    await loadIdentity({ data_dir });
    const file = join(data_dir, KEY_FILE);

    expect(await refusalOf(file)).toMatch(`${join(file, KEY_FILE)} is unusable`);
  });
});

async function refusalOf(data_dir: string): Promise<string> {
  const failure = await loadIdentity({ data_dir }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(IdentityError);
  return (failure as IdentityError).message;
}

async function isSignedBy({ address, sign }: NodeIdentity, text: string): Promise<boolean> {
  const bytes = decodeBase58(address) as Uint8Array;
  const key = createPublicKey({
    key: { kty: "OKP", crv: "Ed25519", x: Buffer.from(bytes).toString("base64url") },
    format: "jwk",
  });
  return verify(null, Buffer.from(text), key, await sign(Buffer.from(text)));
}

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
