import * as z from "zod";

/**
 * For what only our own code writes, on the way of every job. Checking each field of arguments that the compiler has
 * checked took as long as the call itself; the conformance tests hold the two sides together instead.
 */
export function trusted<T>(): z.ZodType<T> {
  return z.custom<T>();
}

/** A reply that begins with its tag. The rest is as the script's header says. */
export function trustedReply<T extends readonly [string, ...unknown[]]>(): z.ZodType<T> {
  return z.custom<T>((reply) => Array.isArray(reply) && typeof reply[0] === "string");
}
