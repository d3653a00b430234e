import * as z from "zod";
import { type ErrorCode, type ErrorDetails, isErrorCode, TenureError } from "./errors.ts";

/** An error as it travels: in HTTP answers and in the `response` of a call over a socket. */
export const ErrorInfo = z.object({
  code: z.string().min(1).max(128),
  message: z.string(),
  retryable: z.boolean(),
  details: z.record(z.string(), z.unknown()).default({}),
});
export type ErrorInfo = z.infer<typeof ErrorInfo>;

export const ErrorBody = z.object({ error: ErrorInfo });
export type ErrorBody = z.infer<typeof ErrorBody>;

/**
 * What the caller may see of an error. Anything but a `TenureError` is a surprise, and a surprise may
 * quote a query, a path or a secret: it becomes a bare INTERNAL. Log the original first.
 */
export function toErrorInfo(error: unknown): ErrorInfo {
  if (!(error instanceof TenureError)) return toErrorInfo(new TenureError("INTERNAL", {}));
  const { wireCode, message, retryable, details } = error;
  return { code: wireCode, message, retryable, details: details as Record<string, unknown> };
}

export function toErrorBody(error: unknown): ErrorBody {
  return { error: toErrorInfo(error) };
}

/**
 * The error another process sent, as the class its own code would have thrown. Never throws: an
 * unknown code of a newer server becomes INTERNAL that keeps code, message and `retryable`, and
 * so does an answer that is no error body at all (a proxy's HTML page, say).
 *
 * `status` is the HTTP status it came with, so that a relay can pass it on.
 */
export function fromErrorBody(body: unknown, status?: number): TenureError {
  const parsed = ErrorBody.safeParse(body);
  if (parsed.success) return fromErrorInfo(parsed.data.error, status);
  return new TenureError("INTERNAL", { reason: unreadable(status) }, { cause: body });
}

export function fromErrorInfo(info: ErrorInfo, status?: number): TenureError {
  const { details, ...received } = info;
  const code: ErrorCode = isErrorCode(info.code) ? info.code : "INTERNAL";
  return new TenureError(
    code,
    // The sender's version decides what is in here; readers of a detail must live with its absence.
    details as ErrorDetails<ErrorCode>,
    { received: status === undefined ? received : { ...received, status } },
  );
}

const unreadable = (status?: number): string =>
  `the server answered ${status ?? "an error"} without a readable error body`;
