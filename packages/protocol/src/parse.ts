import type * as z from "zod";
import { type FieldIssue, TenureError } from "./errors.ts";
import { cutText, JSON_DEPTH_MAX, JSON_TOO_DEEP_MESSAGE } from "./formats.ts";
import { findMember, type JsonText } from "./json-text.ts";

/** A frame may have a thousand mistakes; the first few are enough. */
const ISSUES_MAX = 8;
const PATH_LENGTH_MAX = 200;

/** Parses and checks one text frame of a socket. Throws `INVALID_MESSAGE`. */
export function parseMessage<T>(schema: z.ZodType<T>, frame: string): T {
  return check(schema, parseJson(frame), "INVALID_MESSAGE");
}

/** Checks the parameters, query or body of an HTTP request. Throws `INVALID_REQUEST`. */
export function parseRequest<T>(schema: z.ZodType<T>, value: unknown): T {
  return check(schema, value, "INVALID_REQUEST");
}

/**
 * Returns a member of a checked frame or body as its original text. The depth is checked again, because the parsed value has
 * only the last of two members with the same key.
 */
export function memberText(
  text: string,
  key: string,
  code: "INVALID_MESSAGE" | "INVALID_REQUEST",
): JsonText | undefined {
  const span = findMember(text, key);
  if (!span) return undefined;
  if (span.depth > JSON_DEPTH_MAX) {
    const issues = [{ path: key, message: JSON_TOO_DEEP_MESSAGE }];
    throw new TenureError(code, { reason: issueText(issues), issues });
  }
  return { text: text.slice(span.start, span.end), isCompact: span.isCompact };
}

/** Lists the wrong fields for the sender. */
export function fieldIssues(error: z.ZodError): FieldIssue[] {
  return error.issues.slice(0, ISSUES_MAX).map((issue) => ({
    path: cutText(issue.path.map(String).join("."), PATH_LENGTH_MAX),
    message: issue.message,
  }));
}

/** Joins issues into one line. */
export function issueText(issues: readonly FieldIssue[]): string {
  return issues.map(({ path, message }) => (path ? `${path}: ${message}` : message)).join("; ");
}

function check<T>(
  schema: z.ZodType<T>,
  value: unknown,
  code: "INVALID_MESSAGE" | "INVALID_REQUEST",
): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = fieldIssues(result.error);
  throw new TenureError(code, { reason: issueText(issues), issues });
}

function parseJson(frame: string): unknown {
  try {
    return JSON.parse(frame);
  } catch {
    // V8's own message quotes the frame, which may contain a token.
    throw new TenureError("INVALID_MESSAGE", { reason: "not JSON" });
  }
}
