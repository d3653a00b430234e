import { describe, expect, test } from "vitest";
import { createUrlRing, socketUrl } from "./urls.ts";

describe("the socket URL", () => {
  test.for([
    ["http://127.0.0.1:7070", "ws://127.0.0.1:7070/ws/node"],
    ["https://tenure.example", "wss://tenure.example/ws/node"],
    ["ws://host:1", "ws://host:1/ws/node"],
    ["wss://host", "wss://host/ws/node"],
    ["HTTPS://Host/", "wss://host/ws/node"],
    ["https://host/base/", "wss://host/base/ws/node"],
    ["ws://host/ws/node", "ws://host/ws/node"],
    ["http://host/?zone=b#top", "ws://host/ws/node?zone=b"],
    ["http://[::1]:7070", "ws://[::1]:7070/ws/node"],
  ] as const)("%s is %s", ([address, url]) => {
    expect(socketUrl(address, "/ws/node")).toBe(url);
  });

  test.for([
    "",
    "host:7070",
    "ftp://host",
    "javascript:alert(1)",
    "http://",
    "http://a b",
  ])("%j is nowhere", (address) => {
    expect(socketUrl(address, "/ws/session")).toBeUndefined();
  });
});

describe("the ring of URLs", () => {
  const hosts = (...names: string[]) => names.map((name) => `ws://${name}/ws/session`);

  test("returns all in order, then the first again", () => {
    const ring = createUrlRing(["http://a", "http://b", "http://c"], "/ws/session");

    expect([1, 2, 3, 4].map(() => ring.next())).toEqual(hosts("a", "b", "c", "a"));
  });

  test("returns the URLs of a stopping instance first, once, and not its own", () => {
    const ring = createUrlRing(["http://a", "http://b"], "/ws/session");
    ring.next();
    ring.prefer(["http://a", "http://x", "nonsense", "http://y"]);

    expect([1, 2, 3, 4].map(() => ring.next())).toEqual(hosts("x", "y", "b", "a"));
  });

  test("ignores URLs without TLS after one with TLS", () => {
    const ring = createUrlRing(["https://a", "https://b"], "/ws/session");
    ring.next();
    ring.prefer(["http://evil", "https://c"]);

    expect(ring.next()).toBe("wss://c/ws/session");
    expect(ring.next()).toBe("wss://b/ws/session");
  });

  test("ignores most of thousands of URLs", () => {
    const ring = createUrlRing(["http://a"], "/ws/session");
    ring.next();
    ring.prefer(Array.from({ length: 5_000 }, (_, index) => `http://x${index}`));
    const tried = Array.from({ length: 17 }, () => ring.next());

    expect(tried.at(-1)).toBe("ws://a/ws/session");
  });

  test("refuses an empty list or an invalid URL at once, without quoting it", () => {
    expect(() => createUrlRing([], "/ws/node")).toThrow("no URL to connect to");
    expect(() => createUrlRing(["user:SECRET@host"], "/ws/node")).toThrow(/^(?!.*SECRET)/);
  });
});
