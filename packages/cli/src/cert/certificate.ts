import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  X509Certificate,
} from "node:crypto";
import { isIP } from "node:net";
import * as der from "./der.ts";

/**
 * Issues certificates for trying TLS and for tests: P-256, ECDSA with SHA-256, a CA of one level.
 *
 * Node can parse X.509 and cannot write it. The libraries that do bring twelve packages (`@peculiar/x509`) or only RSA
 * (`node-forge`); what is needed here is one structure.
 */

/** A certificate and its private key, both in PEM. */
export interface Pair {
  cert: string;
  key: string;
}

export interface Subject {
  /** The common name: a label for people. Clients compare only `hosts`. */
  name: string;
  /** Names and addresses that clients may connect to. */
  hosts?: readonly string[];
  usages: readonly (keyof typeof USAGES)[];
  from?: Date;
  until: Date;
}

const OID = {
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  commonName: "2.5.4.3",
  subjectKeyId: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyId: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
};
const USAGES = { server: "1.3.6.1.5.5.7.3.1", client: "1.3.6.1.5.5.7.3.2" };
const ALGORITHM = der.sequence(der.oid(OID.ecdsaWithSha256));
/** A certificate is valid a little before it is made: clocks differ. */
const CLOCK_SLACK_MS = 5 * 60_000;

/** Makes a CA that signs certificates of servers and clients, and no other CA. */
export function createCa(name: string, until: Date): Pair {
  const { privateKey } = newKey();
  const own = createPublicKey(privateKey);
  const cert = signed({
    subject: { name, usages: [], until },
    subjectKey: own,
    issuer: { name, key: privateKey },
    extensions: [
      // pathLenConstraint 0
      extension(
        OID.basicConstraints,
        der.sequence(der.boolean(true), der.integer(Buffer.of(0))),
        true,
      ),
      // keyCertSign, cRLSign
      extension(OID.keyUsage, der.bitString(Buffer.of(0x06), 1), true),
    ],
  });
  return { cert, key: pemOf(privateKey) };
}

/** Issues a certificate, signed by the CA, with a new key. */
export function issue(ca: Pair, subject: Subject): Pair {
  const { privateKey, publicKey } = newKey();
  const hosts = subject.hosts ?? [];
  const cert = signed({
    subject,
    subjectKey: publicKey,
    issuer: { name: nameOf(ca), key: createPrivateKey(ca.key) },
    extensions: [
      extension(OID.basicConstraints, der.sequence(), true),
      // digitalSignature
      extension(OID.keyUsage, der.bitString(Buffer.of(0x80), 7), true),
      extension(
        OID.extendedKeyUsage,
        der.sequence(...subject.usages.map((usage) => der.oid(USAGES[usage]))),
      ),
      ...(hosts.length > 0
        ? [extension(OID.subjectAltName, der.sequence(...hosts.map(generalName)))]
        : []),
    ],
  });
  return { cert, key: pemOf(privateKey) };
}

const newKey = () => generateKeyPairSync("ec", { namedCurve: "P-256" });

/** The common name of a CA that this file made: its whole subject. */
function nameOf({ cert }: Pair): string {
  const { subject } = new X509Certificate(cert);
  const [, name] = /^CN=([^\n]*)$/.exec(subject) ?? [];
  if (name === undefined)
    throw new Error("the CA has a subject other than one common name; tenure cert did not make it");
  return name;
}

interface Unsigned {
  subject: Subject;
  subjectKey: KeyObject;
  issuer: { name: string; key: KeyObject };
  extensions: Buffer[];
}

function signed({ subject, subjectKey, issuer, extensions }: Unsigned): string {
  const { from = new Date(Date.now() - CLOCK_SLACK_MS), until } = subject;
  const keyIds = [
    extension(OID.subjectKeyId, der.octetString(keyId(subjectKey))),
    extension(
      OID.authorityKeyId,
      der.sequence(der.implicit(0, keyId(createPublicKey(issuer.key)))),
    ),
  ];
  const body = der.sequence(
    der.explicit(0, der.integer(Buffer.of(2))), // version 3
    der.integer(serialNumber()),
    ALGORITHM,
    distinguishedName(issuer.name),
    der.sequence(der.time(from), der.time(until)),
    distinguishedName(subject.name),
    subjectKey.export({ type: "spki", format: "der" }),
    der.explicit(3, der.sequence(...extensions, ...keyIds)),
  );
  const signature = sign("sha256", body, issuer.key);
  return pem("CERTIFICATE", der.sequence(body, ALGORITHM, der.bitString(signature)));
}

/** 127 random bits: the first is clear, and the first byte is not zero, as DER wants an integer without padding. */
function serialNumber(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0]! & 0x7f) | 0x40;
  return bytes;
}

const distinguishedName = (name: string): Buffer =>
  der.sequence(der.set(der.sequence(der.oid(OID.commonName), der.utf8(name))));

function extension(id: string, content: Buffer, isCritical = false): Buffer {
  return der.sequence(
    der.oid(id),
    ...(isCritical ? [der.boolean(true)] : []),
    der.octetString(content),
  );
}

function generalName(host: string): Buffer {
  if (isIP(host) === 0) return der.implicit(2, Buffer.from(host, "latin1"));
  return der.implicit(7, addressBytes(host));
}

/** The 4 or 16 bytes of an address. The URL parser writes the short form of an IPv6 address in one way only. */
function addressBytes(address: string): Buffer {
  if (isIP(address) === 4) return Buffer.from(address.split(".").map(Number));
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail] = text.split("::");
  const groups = (part: string) => part.split(":").filter(Boolean);
  const [front, back] = [groups(head), groups(tail ?? "")];
  const zeros = Array.from({ length: 8 - front.length - back.length }, () => "0");
  const words = [...front, ...zeros, ...back].map((word) => Number.parseInt(word, 16));
  return Buffer.from(words.flatMap((word) => [word >> 8, word & 0xff]));
}

/** The SHA-1 of the public key's bits, by which a chain is found (RFC 5280, 4.2.1.2). */
function keyId(key: KeyObject): Buffer {
  const spki = key.export({ type: "spki", format: "der" });
  return createHash("sha1").update(spki.subarray(-POINT_BYTES)).digest();
}

/** An uncompressed point of P-256, at the end of the encoded key. */
const POINT_BYTES = 65;

const pemOf = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString("base64").match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ""].join("\n");
}
