import { createPrivateKey } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { createTestCa, replaceFile } from "@tenure/testing/certificates";
import { describe, expect, test } from "vitest";
import { PemFiles, PemProblem } from "./pem-files.ts";

const ca = createTestCa();

function open(name: string) {
  const pair = ca.files(name);
  const paths = {
    cert: { name: "cert_file", path: pair.certFile },
    key: { name: "key_file", path: pair.keyFile },
    ca: { name: "ca_file", path: ca.caFile },
  };
  return { pair, paths, files: new PemFiles(paths) };
}

test("files that have not changed are not taken again, and changed ones are", () => {
  const { pair, files } = open("changed");
  expect(files.refresh()).toBe(false);
  const renewed = ca.issue();
  replaceFile(pair.keyFile, renewed.key);
  replaceFile(pair.certFile, renewed.cert);
  expect(files.current.cert).toBe(pair.cert);
  expect(files.refresh()).toBe(true);
  expect(files.current).toMatchObject(renewed);
});

test("half of a pair is not taken, and what was read last stays", () => {
  const { pair, files } = open("half");
  const renewed = ca.issue();
  replaceFile(pair.keyFile, renewed.key);
  expect(() => files.refresh()).toThrow("key_file is not the key of the certificate in cert_file");
  expect(files.newest()).toMatchObject({ cert: pair.cert, key: pair.key });
  replaceFile(pair.certFile, renewed.cert);
  expect(files.newest()).toMatchObject(renewed);
});

describe("a file that cannot be used is named with the reason", () => {
  const encrypted = createPrivateKey(ca.issue().key).export({
    ...{ type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "secret" },
  } as never) as unknown as string;

  test.each([
    ["keyFile", encrypted, "key_file has a passphrase; expected a key without one"],
    ["keyFile", "nothing", "key_file has no private key in PEM"],
    ["certFile", "nothing", "cert_file has no certificate in PEM"],
    ["certFile", undefined, "cert_file names a file that cannot be read (ENOENT)"],
  ] as const)("%s", (file, text, sentence) => {
    const { pair, paths, files } = open("wrong");
    if (text === undefined) rmSync(pair[file]);
    else writeFileSync(pair[file], text);
    expect(() => new PemFiles(paths)).toThrow(new PemProblem(sentence));
    expect(files.newest()).toMatchObject({ cert: pair.cert, key: pair.key });
  });

  test("a CA file without a certificate would trust the CAs of Node", () => {
    const { pair } = open("empty");
    writeFileSync(pair.keyFile, "");
    expect(() => new PemFiles({ ca: { name: "ca_file", path: pair.keyFile } })).toThrow(
      "ca_file has no certificate in PEM",
    );
  });
});
