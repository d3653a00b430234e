import { hostname } from "node:os";
import { describe, expect, test } from "vitest";
import { createHostGuard } from "./hosts.ts";

const guard = createHostGuard({
  host: "127.0.0.1",
  advertiseUrl: "https://tenure.example.org:8443/base",
  allowedOrigins: ["https://console.example.net/", "http://localhost:5173"],
});

describe("Host", () => {
  test.each([
    "127.0.0.1",
    "127.0.0.1:7070",
    "localhost:7070",
    "LOCALHOST",
    "[::1]:7070",
    "tenure.example.org",
    "tenure.example.org:9",
    "console.example.net",
  ])("%s is a name of this server", (host) => {
    expect(guard.hostAllowed(host)).toBe(true);
  });

  test.each([
    undefined,
    "",
    "evil.example.com",
    "evil.example.com:7070",
    "localhost.evil.example.com",
    "127.0.0.1.evil.example.com",
    "127.0.0.2",
    "10.0.0.1",
    "0.0.0.0",
    "[::2]",
    // Texts of which a reader of URLs would make 127.0.0.1 or localhost.
    "evil.example.com@127.0.0.1",
    "127.0.0.1/evil.example.com",
    "127.0.0.1?evil.example.com",
    "127.0.0.1#evil.example.com",
    "127.0.0.1\\evil.example.com",
    "localhost:7070:7070",
    "local\thost",
    "127.0.0.1, evil.example.com",
    "%6cocalhost",
    "2130706433",
    "0x7f.1",
  ])("%j is no name of this server", (host) => {
    expect(guard.hostAllowed(host)).toBe(false);
  });

  test("bound to every address, the machine's own names and addresses are allowed too", () => {
    const open = createHostGuard({ host: "0.0.0.0", advertiseUrl: "", allowedOrigins: [] });
    expect(open.hostAllowed(`${hostname()}:7070`)).toBe(true);
    expect(open.hostAllowed("127.0.0.1")).toBe(true);
    expect(open.hostAllowed("evil.example.com")).toBe(false);
    expect(guard.hostAllowed(`${hostname()}:7070`)).toBe(hostname() === "localhost");
  });
});

describe("Origin", () => {
  test.each([
    undefined,
    "http://127.0.0.1:7070",
    "https://127.0.0.1:7070",
    "https://console.example.net",
    "HTTPS://CONSOLE.example.net",
    "http://localhost:5173",
  ])("%s may call 127.0.0.1:7070", (origin) => {
    expect(guard.originAllowed(origin, "127.0.0.1:7070")).toBe(true);
  });

  test.each([
    "null",
    "",
    "http://evil.example.com",
    "http://127.0.0.1",
    "http://127.0.0.1:7071",
    "http://localhost:7070",
    "http://console.example.net",
    "https://console.example.net.evil.example.com",
    "https://evil.example.com/https://console.example.net",
    "ftp://127.0.0.1:7070",
  ])("%j may not call 127.0.0.1:7070", (origin) => {
    expect(guard.originAllowed(origin, "127.0.0.1:7070")).toBe(false);
  });
});
