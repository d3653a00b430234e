import * as z from "zod";
import { decodeBase58 } from "./base58.ts";

/** The version in the first message of both sides. Incremented only when an old peer would misread a message. */
export const PROTOCOL_VERSION = 1;

// --- numbers: `z.int()` refuses what is not exact in a double, that is, anything above 2^53 - 1 ---

export const Generation = z.int().min(0);
export type Generation = z.infer<typeof Generation>;

export const Epoch = z.int().min(0);
export type Epoch = z.infer<typeof Epoch>;

export const FencingToken = z.int().min(0);
export type FencingToken = z.infer<typeof FencingToken>;

export const Nonce = z.int().min(0);
export type Nonce = z.infer<typeof Nonce>;

export const AttemptId = z.int().min(1);
export type AttemptId = z.infer<typeof AttemptId>;

export const Count = z.int().min(0);
export type Count = z.infer<typeof Count>;

/** The largest `int` of Postgres, for columns of that type. */
export const INT4_MAX = 2_147_483_647;
export const SmallCount = z.int().min(0).max(INT4_MAX);

/** A longer delay overflows a timer, which then fires at once. It is also the largest `int` of Postgres. */
const DURATION_MS_MAX = 2_147_483_647;
export const DurationMs = z.int().min(0).max(DURATION_MS_MAX);
export type DurationMs = z.infer<typeof DurationMs>;

/** RFC 3339 in UTC with milliseconds: what `Date.prototype.toISOString` writes. */
export const Timestamp = z.iso.datetime({ precision: 3 });
export type Timestamp = z.infer<typeof Timestamp>;

// --- ids that Tenure makes ---

/**
 * Tenure makes version 7, but rows inserted by hand may have any version. Lower-cased while parsing: an id is also part of a
 * Redis key, where case matters.
 */
export const Uuid = z.guid().toLowerCase();
export type Uuid = z.infer<typeof Uuid>;

export const JobId = Uuid;
export type JobId = Uuid;
export const TurnId = Uuid;
export type TurnId = Uuid;
export const HoldId = Uuid;
export type HoldId = Uuid;
export const BootId = Uuid;
export type BootId = Uuid;
export const DeploymentId = Uuid;
export type DeploymentId = Uuid;

/** 128 random bits. Not a UUID of version 7, which would reveal when the session began. */
export const SessionId = z.string().regex(/^[0-9a-f]{32}$/, "must be 32 lower-case hex characters");
export type SessionId = z.infer<typeof SessionId>;

/** Random texts of the server: resume tokens and challenges. Without `:`, because they are signed between colons. */
export const RandomToken = z.string().regex(/^[A-Za-z0-9_-]{16,256}$/, "must be base64url");
export type RandomToken = z.infer<typeof RandomToken>;

// --- ids that callers choose ---

/** Names chosen by clients. Without braces, which would move a Redis key to another slot. */
export const ClientId = z
  .string()
  .regex(/^[A-Za-z0-9._:@/-]{1,128}$/, "must be 1 to 128 of A-Z a-z 0-9 . _ : @ / -");
export type ClientId = z.infer<typeof ClientId>;

export const RequestId = ClientId;
export type RequestId = ClientId;
export const Pool = ClientId;
export type Pool = ClientId;
export const Service = ClientId;
export type Service = ClientId;
export const TraceId = ClientId;
export type TraceId = ClientId;
export const Tenant = ClientId;
export type Tenant = ClientId;

/** Set by the operator or made at start. Without a slash, because it is part of the path of dead-letter routes. */
export const InstanceId = z
  .string()
  .regex(/^[A-Za-z0-9._:@-]{1,128}$/, "must be 1 to 128 of A-Z a-z 0-9 . _ : @ -");
export type InstanceId = z.infer<typeof InstanceId>;

/**
 * A node's address that was checked before: only the letters and the length of 32 bytes in base58. Decoding costs 5 µs, more
 * than the rest of the message; `NodeAddress` did it when the address arrived.
 */
export const NodeId = z.string().regex(/^[1-9A-HJ-NP-Za-km-z]{32,44}$/, "must be base58");
export type NodeId = z.infer<typeof NodeId>;

/** The ed25519 public key of a node in base58. The node proves at every connect that it has the private key. */
export const NodeAddress = NodeId.refine(
  (text) => decodeBase58(text)?.length === 32,
  "must be 32 bytes in base58",
);
export type NodeAddress = z.infer<typeof NodeAddress>;

/**
 * One account on one chain; `eip155:1:0x…` is the documented form. Parsing normalises it, because two spellings of one address
 * would be two signers that allocate the same nonces.
 */
export const Signer = z
  .string()
  .regex(/^[A-Za-z0-9._:-]{1,200}$/, "must be 1 to 200 of A-Z a-z 0-9 . _ : -")
  .overwrite(normalizeSigner);
export type Signer = z.infer<typeof Signer>;

/** Lower-cases only `0x` + 40 hex digits: in base58 account names case matters. */
export function normalizeSigner(signer: string): string {
  const address = /(?<![0-9A-Za-z])0x[0-9a-f]{40}(?![0-9A-Za-z])/gi;
  return signer.replace(address, (match) => match.toLowerCase());
}

/** The roles of tokens that an operator makes. */
export const ROLES = ["admin", "viewer", "session", "node", "signer", "peer"] as const;
/** `child`: the token that a child of a deployment gets. No setting and no table has one. */
export const CALLER_ROLES = [...ROLES, "child"] as const;
export const Role = z.enum(CALLER_ROLES);
export type Role = z.infer<typeof Role>;

// --- free text and JSON ---

/** Text that every store accepts. Postgres refuses NUL in text, and a lone surrogate in `jsonb`. */
export function text(lengthMax: number) {
  return z.string().max(lengthMax).refine(isStorable, "must not contain NUL or half a character");
}

/** Cuts a text to so many UTF-16 units, without half a character at the end. */
export function cutText(value: string, lengthMax: number): string {
  if (value.length <= lengthMax) return value;
  const last = value.charCodeAt(lengthMax - 1);
  return value.slice(0, last >= 0xd800 && last <= 0xdbff ? lengthMax - 1 : lengthMax);
}

const isStorable = (value: string): boolean =>
  !value.includes("\0") && !/\p{Surrogate}/u.test(value);

export const Labels = z.record(ClientId, text(256));
export type Labels = z.infer<typeof Labels>;

/** `JSON.stringify` overflows the stack near 5,000 levels, cjson gives up at 1,000. */
export const JSON_DEPTH_MAX = 256;
export const JSON_TOO_DEEP_MESSAGE = `must be nested at most ${JSON_DEPTH_MAX} deep`;

/** Any JSON value, which may be null but not absent. The gateway limits its bytes. */
export const Json = z
  .unknown()
  .refine((value) => value !== undefined, "is required")
  .refine(isShallow, JSON_TOO_DEEP_MESSAGE);

/** Level by level, because a value that is too deep would break a recursion. */
function isShallow(value: unknown): boolean {
  let level = [value].filter(isNested);
  for (let depth = 0; level.length > 0; depth++) {
    if (depth === JSON_DEPTH_MAX) return false;
    level = nestedIn(level);
  }
  return true;
}

/** Plain loops: `flatMap` took three times as long on a payload of 200 kB. */
function nestedIn(level: object[]): object[] {
  const found: object[] = [];
  for (const parent of level) {
    for (const child of Array.isArray(parent) ? parent : Object.values(parent)) {
      if (isNested(child)) found.push(child);
    }
  }
  return found;
}

const isNested = (value: unknown): value is object => typeof value === "object" && value !== null;
