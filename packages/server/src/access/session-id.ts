import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Random } from "../kernel/random.ts";

const RANDOM_BYTES = 32;
const TAG_BYTES = 16;
const FORM = /^[A-Za-z0-9_-]{64}$/;

/**
 * The id of a console session: 256 random bits, and a tag made with the fleet's key. The random part is what opens the
 * session. The tag only says that the id was made here: a stranger's invented ids cost no query.
 */
export function newSessionId(random: Random, key: string): string {
  const chance = random.bytes(RANDOM_BYTES);
  return Buffer.concat([chance, tagOf(chance, key)]).toString("base64url");
}

/** Whether this is a form that an id can have; says nothing about its tag. */
export const looksLikeSessionId = (text: string): boolean => FORM.test(text);

export function wasMadeWith(key: string, id: string): boolean {
  if (!looksLikeSessionId(id)) return false;
  const bytes = Buffer.from(id, "base64url");
  const [chance, tag] = [bytes.subarray(0, RANDOM_BYTES), bytes.subarray(RANDOM_BYTES)];
  return timingSafeEqual(tag, tagOf(chance, key));
}

/** What Postgres keeps in place of an id. */
export const sessionIdSha256 = (id: string): string =>
  createHash("sha256").update(id, "utf8").digest("hex");

const tagOf = (chance: Buffer, key: string): Buffer =>
  createHmac("sha256", key).update(chance).digest().subarray(0, TAG_BYTES);
