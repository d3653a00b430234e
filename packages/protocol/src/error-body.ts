import * as z from "zod";
import { type ErrorCode, type ErrorDetails, isErrorCode, TenureError } from "./errors.ts";

/** An error on the wire: in HTTP answers and in the `response` of a call over a socket. */
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
 * The part of an error that the caller may see. Anything but a `TenureError` is unexpected and may quote a query, a path or a
 * secret: it becomes INTERNAL without details. Log the original first.
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
 * Converts the error of another process into a `TenureError`. Never throws: an unknown code of a newer server becomes INTERNAL
 * that keeps code, message and `retryable`, and so does an answer that is not an error body (such as the HTML page of a
 * proxy).
 *
 * `status` is its HTTP status, so that a relay can pass it on.
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
    // The details depend on the version of the sender; a reader must allow for a missing one.
    details as ErrorDetails<ErrorCode>,
    { received: status === undefined ? received : { ...received, status } },
  );
}

const unreadable = (status?: number): string =>
  `the server answered ${status ?? "an error"} without a readable error body`;
