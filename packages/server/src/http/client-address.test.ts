import type { IncomingMessage } from "node:http";
import { expect, test } from "vitest";
import { clientAddress, createTrustedProxies, recordClientAddress } from "./client-address.ts";

function addressOf(peer: string, forwarded?: string, trusted = ["10.0.0.0/8", "fd00::1"]): string {
  const request = {
    socket: { remoteAddress: peer },
    headers: { ...(forwarded !== undefined && { "x-forwarded-for": forwarded }) },
  } as unknown as IncomingMessage;
  recordClientAddress(request, createTrustedProxies(trusted));
  return clientAddress(request);
}

test("a header of a client that is no trusted proxy does not change its address", () => {
  expect(addressOf("192.0.2.7")).toBe("192.0.2.7");
  expect(addressOf("192.0.2.7", "198.51.100.1")).toBe("192.0.2.7");
  expect(addressOf("10.1.1.1", "198.51.100.1", [])).toBe("10.1.1.1");
  expect(addressOf("::ffff:192.0.2.7")).toBe("192.0.2.7");
});

test("behind trusted proxies the address is the last one that is no trusted proxy", () => {
  expect(addressOf("10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
  expect(addressOf("::ffff:10.1.1.1", "198.51.100.1")).toBe("198.51.100.1");
  expect(addressOf("10.1.1.1", "1.1.1.1, 198.51.100.1, 10.2.2.2")).toBe("198.51.100.1");
  expect(addressOf("fd00::1", "2001:DB8::1")).toBe("2001:db8::1");
  expect(addressOf("10.1.1.1", "198.51.100.1:4711")).toBe("198.51.100.1");
  expect(addressOf("10.1.1.1", "[2001:db8::1]:4711")).toBe("2001:db8::1");
});

test("an entry that is no address gives the address of the proxy that wrote it", () => {
  expect(addressOf("10.1.1.1")).toBe("10.1.1.1");
  expect(addressOf("10.1.1.1", "")).toBe("10.1.1.1");
  expect(addressOf("10.1.1.1", "198.51.100.1, evil")).toBe("10.1.1.1");
  expect(addressOf("10.1.1.1", "198.51.100.1, evil, 10.2.2.2")).toBe("10.2.2.2");
});
