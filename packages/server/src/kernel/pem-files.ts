import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";

/** A file, under the name that a message to an operator gives it. */
export interface NamedFile {
  name: string;
  path: string;
}

/** A certificate with its key, and the CAs of the other side; each may be absent. */
export interface PemPaths {
  cert?: NamedFile | undefined;
  key?: NamedFile | undefined;
  ca?: NamedFile | undefined;
}

export interface Pem {
  cert?: string | undefined;
  key?: string | undefined;
  ca?: string | undefined;
}

export class PemProblem extends Error {}

/**
 * Certificates in files that may be replaced while this process runs. Their content is read and compared: a watch of a path
 * does not report that a symbolic link above it now leads elsewhere, nor does its date show a copy.
 */
export class PemFiles {
  readonly #paths: PemPaths;
  #current: Pem;

  /** Throws a `PemProblem` when the files cannot be used. */
  constructor(paths: PemPaths) {
    this.#paths = paths;
    this.#current = checked(paths, read(paths));
  }

  /** As they were read last. */
  get current(): Pem {
    return this.#current;
  }

  /** Reads the files first. While they cannot be used (half of a pair is written, one is missing) it is what was read last. */
  newest(): Pem {
    try {
      this.refresh();
    } catch (error) {
      if (!(error instanceof PemProblem)) throw error;
    }
    return this.#current;
  }

  /** Reads the files. True when something else is in them; throws a `PemProblem`, and keeps what it has, when that is broken. */
  refresh(): boolean {
    const pem = read(this.#paths);
    if (isSame(pem, this.#current)) return false;
    this.#current = checked(this.#paths, pem);
    return true;
  }
}

/** The certificate of a pair: the first in its file, before those of its chain. */
export const leafOf = ({ cert }: Pem): X509Certificate | undefined =>
  cert === undefined ? undefined : new X509Certificate(cert);

const isSame = (a: Pem, b: Pem): boolean => a.cert === b.cert && a.key === b.key && a.ca === b.ca;

const read = ({ cert, key, ca }: PemPaths): Pem => ({
  cert: cert && textOf(cert),
  key: key && textOf(key),
  ca: ca && textOf(ca),
});

function textOf({ name, path }: NamedFile): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new PemProblem(
      `${name} names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`,
    );
  }
}

/** Finds what is wrong before OpenSSL does: its own messages name neither a file nor a remedy. */
function checked({ cert, key, ca }: PemPaths, pem: Pem): Pem {
  if (ca) for (const one of certificatesIn(pem.ca)) parsed(ca, one);
  if (ca && certificatesIn(pem.ca).length === 0)
    throw new PemProblem(`${ca.name} has no certificate in PEM`);
  if (cert && key) {
    const leaf = parsed(cert, pem.cert ?? "");
    const own = privateKey(key, pem.key ?? "");
    if (!leaf.checkPrivateKey(own))
      throw new PemProblem(`${key.name} is not the key of the certificate in ${cert.name}`);
    if (Date.parse(leaf.validTo) <= Date.now())
      throw new PemProblem(`the certificate in ${cert.name} has expired (${leaf.validTo})`);
  }
  try {
    createSecureContext({ cert: pem.cert, key: pem.key, ca: pem.ca });
  } catch (error) {
    const names = [cert, key, ca].flatMap((file) => file?.name ?? []).join(", ");
    throw new PemProblem(`${names} cannot be used: ${(error as Error).message}`);
  }
  return pem;
}

const certificatesIn = (text = ""): string[] =>
  text.match(/-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs) ?? [];

function parsed({ name }: NamedFile, text: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch {
    throw new PemProblem(`${name} has no certificate in PEM`);
  }
}

function privateKey({ name }: NamedFile, text: string) {
  if (text.includes("ENCRYPTED"))
    throw new PemProblem(`${name} has a passphrase; expected a key without one`);
  try {
    return createPrivateKey(text);
  } catch {
    throw new PemProblem(`${name} has no private key in PEM`);
  }
}
