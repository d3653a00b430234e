import { fieldIssues, issueText, TenureError } from "@tenure/protocol";
import type * as z from "zod";

/** A parsed frame of the server. */
export type Frame<In> =
  | { kind: "message"; message: In }
  /** A message of a newer server. It is ignored, which keeps the two versions compatible. */
  | { kind: "unknown"; type: string }
  | { kind: "bad"; error: TenureError; value?: unknown };

export type ReadFrame = <In>(schema: z.ZodType<In>, text: string) => Frame<In>;

const TYPE_LENGTH_MAX = 64;

export function readFrame<In>(schema: z.ZodType<In>, text: string): Frame<In> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // V8's own message quotes the frame, which may contain a token.
    return { kind: "bad", error: new TenureError("INVALID_MESSAGE", { reason: "not JSON" }) };
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return { kind: "message", message: parsed.data };
  const type = typeOf(value);
  if (type !== undefined && isAboutType(parsed.error))
    return { kind: "unknown", type: type.slice(0, TYPE_LENGTH_MAX) };
  return { kind: "bad", error: wrongFields(type, parsed.error), value };
}

/** Whether the text has at most so many bytes in UTF-8. */
export function isWithin(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return false;
  // UTF-8 needs at most 3 bytes for a UTF-16 unit, so most frames need no count.
  return text.length * 3 <= bytesMax || new TextEncoder().encode(text).length <= bytesMax;
}

function typeOf(value: unknown): string | undefined {
  const type = typeof value === "object" && value !== null && "type" in value ? value.type : "";
  return typeof type === "string" && type !== "" ? type : undefined;
}

/** The only issue of the union is `type` when it knows no such message. */
const isAboutType = ({ issues }: z.ZodError): boolean =>
  issues.length === 1 && issues[0]?.path.length === 1 && issues[0].path[0] === "type";

function wrongFields(type: string | undefined, error: z.ZodError): TenureError {
  const issues = fieldIssues(error);
  const reason = `${type?.slice(0, TYPE_LENGTH_MAX) ?? "frame"}: ${issueText(issues)}`;
  return new TenureError("INVALID_MESSAGE", { reason, issues });
}
