import * as z from "zod";
import type { Check } from "../../store/script.ts";

/**
 * For what only our own code writes, on the way of every job. Checking each field of arguments that the compiler has
 * checked took as long as the call itself; the conformance tests hold the two sides together instead.
 */
export function trusted<T>(): Check<T> {
  return { parse: (value) => value as T };
}

/** A reply that begins with its tag. The rest is as the script's header says. */
export function trustedReply<T extends readonly [string, ...unknown[]]>(): Check<T> {
  return { parse: (reply) => (isTagged(reply) ? reply : Tagged.parse(reply)) as T };
}

const isTagged = (reply: unknown): boolean => Array.isArray(reply) && typeof reply[0] === "string";
const Tagged = z.tuple([z.string()], z.unknown());
