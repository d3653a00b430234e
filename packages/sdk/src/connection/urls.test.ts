import { describe, expect, test } from "vitest";
import { createUrlRing, socketUrl } from "./urls.ts";

describe("where the socket is", () => {
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

describe("which URL is next", () => {
  const hosts = (...names: string[]) => names.map((name) => `ws://${name}/ws/session`);

  test("all in turn, then the first again", () => {
    const ring = createUrlRing(["http://a", "http://b", "http://c"], "/ws/session");

    expect([1, 2, 3, 4].map(() => ring.next())).toEqual(hosts("a", "b", "c", "a"));
  });

  test("the ones a stopping instance names come first, once, and not itself", () => {
    const ring = createUrlRing(["http://a", "http://b"], "/ws/session");
    ring.next();
    ring.prefer(["http://a", "http://x", "nonsense", "http://y"]);

    expect([1, 2, 3, 4].map(() => ring.next())).toEqual(hosts("x", "y", "b", "a"));
  });

  test("nobody is talked out of TLS", () => {
    const ring = createUrlRing(["https://a", "https://b"], "/ws/session");
    ring.next();
    ring.prefer(["http://evil", "https://c"]);

    expect(ring.next()).toBe("wss://c/ws/session");
    expect(ring.next()).toBe("wss://b/ws/session");
  });

  test("a server that names thousands is not believed", () => {
    const ring = createUrlRing(["http://a"], "/ws/session");
    ring.next();
    ring.prefer(Array.from({ length: 5_000 }, (_, index) => `http://x${index}`));
    const tried = Array.from({ length: 17 }, () => ring.next());

    expect(tried.at(-1)).toBe("ws://a/ws/session");
  });

  test("no URL, or one that is none, is refused at once and not repeated", () => {
    expect(() => createUrlRing([], "/ws/node")).toThrow("no URL to connect to");
    expect(() => createUrlRing(["user:SECRET@host"], "/ws/node")).toThrow(/^(?!.*SECRET)/);
  });
});
