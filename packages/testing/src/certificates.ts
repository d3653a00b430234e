import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createCa, issue, type Pair, type Subject } from "@tenure/cli/certificate";
import { scratchDirectory } from "./scratch.ts";

const DAY_MS = 86_400_000;
const until = () => new Date(Date.now() + DAY_MS);

/** A private CA whose certificates are files in a temporary directory. */
export interface TestCa {
  caFile: string;
  /** Issues a pair for servers on this machine (and for clients), or for clients alone. */
  issue(subject?: Partial<Subject>): Pair;
  /** Issues a pair and writes it under this name, over one that is there. */
  files(name: string, subject?: Partial<Subject>): PairFiles;
}

export interface PairFiles extends Pair {
  certFile: string;
  keyFile: string;
}

export const CLIENT: Partial<Subject> = { name: "client", hosts: [], usages: ["client"] };

export function createTestCa(name = "Test CA"): TestCa {
  const directory = scratchDirectory("ca");
  const ca = createCa(name, until());
  const caFile = join(directory, "ca.pem");
  writeFileSync(caFile, ca.cert);
  const issueOne = (subject: Partial<Subject> = {}) =>
    issue(ca, {
      name: "server",
      hosts: ["localhost", "127.0.0.1", "::1"],
      usages: ["server", "client"],
      until: until(),
      ...subject,
    });
  return {
    caFile,
    issue: issueOne,
    files(name, subject) {
      const pair = issueOne(subject);
      const [certFile, keyFile] = [join(directory, `${name}.pem`), join(directory, `${name}.key`)];
      replaceFile(keyFile, pair.key);
      replaceFile(certFile, pair.cert);
      return { ...pair, certFile, keyFile };
    },
  };
}

/** By a rename, as a program that renews certificates does. */
export function replaceFile(path: string, text: string): void {
  writeFileSync(`${path}.new`, text, { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/**
 * Files as Kubernetes mounts a secret: each is a link through `..data`, a link to a directory that is replaced as a
 * whole.
 */
export function mountSecret(directory: string, files: Record<string, string>): void {
  const version = join(directory, `..${Date.now()}`);
  mkdirSync(version, { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(version, name), text);
    rmSync(join(directory, name), { force: true });
    symlinkSync(join("..data", name), join(directory, name));
  }
  symlinkSync(version, join(directory, "..data_tmp"));
  renameSync(join(directory, "..data_tmp"), join(directory, "..data"));
}
