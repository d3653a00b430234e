import { isTenureError, TenureError } from "@tenure/protocol";
import { isRejectedServer, tlsReason } from "../connection/tls.ts";
import { urlsOf } from "../connection/urls.ts";

export interface Attempt {
  url: string;
  /** No server is left to try after this one. */
  last: boolean;
}

export interface Servers {
  /**
   * Runs `attempt` on the server that answered last, and on the others, each once, while it fails with
   * `DEPENDENCY_DOWN` and `mayRepeat` allows another try.
   */
  use<T>(
    attempt: (attempt: Attempt) => Promise<T>,
    mayRepeat: (error: TenureError) => boolean,
  ): Promise<T>;
}

/** The instances that an HTTP client may call. */
export function createServers(url: string | readonly string[]): Servers {
  const urls = urlsOf(url);
  if (urls.length === 0) throw new TenureError("INVALID_REQUEST", { reason: "no URL to call" });
  let current = 0;

  return {
    async use(attempt, mayRepeat) {
      const first = current;
      const failures: { url: string; error: TenureError }[] = [];
      for (let tried = 1; ; tried++) {
        const index = (first + tried - 1) % urls.length;
        const url = urls[index]!;
        const last = tried === urls.length;
        try {
          const answer = await attempt({ url, last });
          current = index;
          return answer;
        } catch (error) {
          if (!isTenureError(error, "DEPENDENCY_DOWN")) throw error;
          // The next call begins with the next server, also when this one is not repeated.
          current = (index + 1) % urls.length;
          failures.push({ url, error });
          if (last || !mayRepeat(error)) throw summary(failures);
        }
      }
    },
  };
}

/** Prefers the answer of a server to the failures without one. */
function summary(failures: readonly { url: string; error: TenureError }[]): TenureError {
  const answered = failures.findLast(({ error }) => error.cause === undefined);
  const only = answered ?? (failures.length === 1 ? failures[0] : undefined);
  if (only) return only.error;
  const { cause } = failures.at(-1)!.error;
  const reason = failures
    .map(({ url, error }) => `${new URL(url).origin}: ${reasonOf(error.cause)}`)
    .join("; ");
  return new TenureError("DEPENDENCY_DOWN", { dependency: "every server", reason }, { cause });
}

/** Converts an error of `fetch`. */
export function noAnswer(url: URL, error: unknown): TenureError {
  const reason = reasonOf(error);
  return new TenureError(
    "DEPENDENCY_DOWN",
    { dependency: `the server at ${url.origin}`, reason },
    { cause: error },
  );
}

/** Whether the request was certainly not sent, because no connection was made. */
export function neverSent(error: TenureError): boolean {
  const { cause } = (error.cause ?? {}) as { cause?: ConnectError };
  const causes = cause?.errors ?? [cause];
  return causes.every(
    (one) =>
      one?.syscall === "connect" ||
      one?.syscall === "getaddrinfo" ||
      one?.code === "UND_ERR_CONNECT_TIMEOUT" ||
      isRejectedServer(one?.code),
  );
}

interface ConnectError {
  code?: string;
  syscall?: string;
  /** A name with several addresses fails with one error for each. */
  errors?: ConnectError[];
}

/** The cause of `fetch failed`, which explains it. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as Error & { cause?: Error & { code?: string } };
  return tlsReason(cause) ?? cause?.code ?? cause?.message ?? message;
}
