import { createPrivateKey, X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, statSync } from "node:fs";
import { createServer as createHttps } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { connect } from "node:tls";
import { scratchDirectory } from "@tenure/testing/scratch";
import { describe, expect, onTestFinished, test } from "vitest";
import { createCa, issue } from "./certificate.ts";
import { pathsOf, writeDevCerts } from "./dev.ts";

const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);
const ca = createCa("Test CA", inDays(10));

describe("a certificate", () => {
  const pair = issue(ca, {
    name: "server",
    hosts: ["localhost", "127.0.0.1", "::1", "2001:db8::a:0:1"],
    usages: ["server", "client"],
    until: inDays(3),
  });
  const cert = new X509Certificate(pair.cert);

  test("is signed by its CA, and belongs to its key", () => {
    const authority = new X509Certificate(ca.cert);
    expect(cert.checkIssued(authority)).toBe(true);
    expect(cert.verify(authority.publicKey)).toBe(true);
    expect(cert.checkPrivateKey(createPrivateKey(pair.key))).toBe(true);
    expect([authority.ca, cert.ca]).toEqual([true, false]);
  });

  test("names the hosts, and no other", () => {
    expect(cert.checkHost("localhost")).toBe("localhost");
    for (const address of ["127.0.0.1", "::1", "2001:db8::a:0:1"])
      expect(cert.checkIP(address), address).toBe(address);
    expect(cert.checkHost("example.com")).toBeUndefined();
    expect(cert.checkIP("127.0.0.2")).toBeUndefined();
  });

  test("is valid from a little earlier until the given time, also beyond 2050", () => {
    expect(Date.parse(cert.validFrom)).toBeLessThan(Date.now());
    expect(Math.abs(Date.parse(cert.validTo) - inDays(3).getTime())).toBeLessThan(60_000);
    const far = new X509Certificate(createCa("Far", new Date("2061-02-03T04:05:06Z")).cert);
    expect(new Date(far.validTo).toISOString()).toBe("2061-02-03T04:05:06.000Z");
  });

  test("has a serial number of its own", () => {
    const other = issue(ca, { name: "server", usages: ["server"], until: inDays(3) });
    expect(new X509Certificate(other.cert).serialNumber).not.toBe(cert.serialNumber);
  });

  test.each([
    { usage: "client", accepted: true },
    { usage: "server", accepted: false },
  ] as const)("of a $usage is accepted as that of a client: $accepted", async ({
    usage,
    accepted,
  }) => {
    const server = createHttps({ ...pair, ca: ca.cert, requestCert: true }, (_, reply) =>
      reply.end(),
    );
    server.listen(0, "127.0.0.1");
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as AddressInfo;
    const client = issue(ca, { name: "client", usages: [usage], until: inDays(1) });
    const shown = new Promise((resolve) => {
      server.once("secureConnection", () => resolve(true));
      server.once("tlsClientError", () => resolve(false));
    });
    const socket = connect({ host: "127.0.0.1", port, ca: ca.cert, ...client });
    socket.on("error", () => {});
    expect(await shown).toBe(accepted);
    socket.destroy();
  });
});

describe("tenure cert dev", () => {
  const options = { hosts: ["fleet.example"], days: 5, force: false, renew: false };

  test("writes keys that only their user can read, for this machine and the given names", () => {
    const directory = join(scratchDirectory("cert"), "new");
    expect(writeDevCerts({ ...options, directory })).toEqual(
      expect.arrayContaining(["localhost", "127.0.0.1", "fleet.example"]),
    );
    for (const name of ["ca", "server", "client"] as const) {
      const { cert, key } = pathsOf(directory, name);
      expect(statSync(key).mode & 0o777, key).toBe(0o600);
      expect(statSync(cert).mode & 0o777, cert).toBe(0o644);
    }
    const server = new X509Certificate(readFileSync(pathsOf(directory, "server").cert));
    expect(server.checkHost("fleet.example")).toBe("fleet.example");
  });

  test("replaces nothing without a flag; --renew keeps the CA, --force does not", () => {
    const directory = scratchDirectory("cert");
    mkdirSync(directory, { recursive: true });
    writeDevCerts({ ...options, directory });
    const read = () =>
      (["ca", "server"] as const).map((name) =>
        readFileSync(pathsOf(directory, name).cert, "utf8"),
      );
    const [authority, server] = read();
    expect(() => writeDevCerts({ ...options, directory })).toThrow(/ca\.pem exists; --renew/);
    expect(read()).toEqual([authority, server]);
    writeDevCerts({ ...options, directory, renew: true });
    const [kept, renewed] = read();
    expect(kept).toBe(authority);
    expect(renewed).not.toBe(server);
    expect(
      new X509Certificate(renewed ?? "").verify(new X509Certificate(kept ?? "").publicKey),
    ).toBe(true);
    writeDevCerts({ ...options, directory, force: true });
    expect(read()[0]).not.toBe(authority);
  });
});
