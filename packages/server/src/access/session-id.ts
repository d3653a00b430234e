import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Random } from "../kernel/random.ts";

const RANDOM_BYTES = 32;
const TAG_BYTES = 16;
const FORM = /^[A-Za-z0-9_-]{64}$/;

/**
 * The id of a console session: 256 random bits and a tag made with the fleet's key. The random part opens the session. The
 * tag proves that an instance made the id, so that invented ids cost no query.
 */
export function newSessionId(random: Random, key: string): string {
  const chance = random.bytes(RANDOM_BYTES);
  return Buffer.concat([chance, tagOf(chance, key)]).toString("base64url");
}

/** Whether the text has the form of an id; its tag is not checked. */
export const looksLikeSessionId = (text: string): boolean => FORM.test(text);

export function wasMadeWith(key: string, id: string): boolean {
  if (!looksLikeSessionId(id)) return false;
  const bytes = Buffer.from(id, "base64url");
  const [chance, tag] = [bytes.subarray(0, RANDOM_BYTES), bytes.subarray(RANDOM_BYTES)];
  return timingSafeEqual(tag, tagOf(chance, key));
}

/** Stored in Postgres in place of the id. */
export const sessionIdSha256 = (id: string): string =>
  createHash("sha256").update(id, "utf8").digest("hex");

const tagOf = (chance: Buffer, key: string): Buffer =>
  createHmac("sha256", key).update(chance).digest().subarray(0, TAG_BYTES);
