import { createServer } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { isConnectionError, reasonOfConnectionError } from "./connection-error.ts";

const failure = (code: string, syscall?: string): Error =>
  Object.assign(new Error(`${syscall ?? "socket"} ${code}`), { code, ...(syscall && { syscall }) });

describe("a connection error", () => {
  test.for([
    ...["ENETUNREACH", "ENETDOWN", "EHOSTUNREACH", "EHOSTDOWN", "ETIMEDOUT", "ECONNREFUSED"],
    ...["ECONNRESET", "ECONNABORTED", "EPIPE", "EAI_AGAIN", "ENOTFOUND", "EADDRNOTAVAIL"],
    ...["ERR_TLS_CERT_ALTNAME_INVALID", "ERR_SSL_WRONG_VERSION_NUMBER", "UND_ERR_SOCKET"],
    ...["CERT_HAS_EXPIRED", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "DEPTH_ZERO_SELF_SIGNED_CERT"],
  ])("is known by its code %s", (code) => {
    expect(isConnectionError(failure(code))).toBe(true);
  });

  test("is known by the call that failed, whatever its code", () => {
    expect(isConnectionError(failure("EPERM", "connect"))).toBe(true);
    expect(isConnectionError(failure("EPERM", "open"))).toBe(false);
  });

  test("is known as the cause of another error, and among those of several addresses", () => {
    const cause = new AggregateError([failure("ECONNREFUSED", "connect")]);
    const error = new TypeError("fetch failed", { cause });
    expect(isConnectionError(error)).toBe(true);
    expect(reasonOfConnectionError(error)).toBe("connect ECONNREFUSED");
  });

  test("is what fetch throws when its peer goes silent, or ends in the middle of an answer", async () => {
    const silent = createServer((socket) => void socket.on("error", () => {}));
    const short = createServer((socket) => {
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"));
    });
    for (const server of [silent, short]) {
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      onTestFinished(() => void server.close());
      const { port } = server.address() as { port: number };
      const ask = async () => {
        const signal = AbortSignal.timeout(200);
        return (await fetch(`http://127.0.0.1:${port}/`, { signal })).text();
      };
      const error = await ask().catch((thrown: unknown) => thrown);
      expect(isConnectionError(error), String(error)).toBe(true);
    }
  });

  test("is none of a mistake in the code", () => {
    expect(isConnectionError(new TypeError("x is not a function"))).toBe(false);
    expect(isConnectionError("ECONNREFUSED")).toBe(false);
  });
});
