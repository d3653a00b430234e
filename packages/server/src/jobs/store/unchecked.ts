import * as z from "zod";
import type { Check } from "../../store/script.ts";

/**
 * For arguments that only our own code writes, in scripts that run for every job. Checking each field again took as long as
 * the call itself; the conformance tests compare the two sides instead.
 */
export function unchecked<T>(): Check<T> {
  return { parse: (value) => value as T };
}

/** Checks only that a reply begins with its tag. The header of the script documents the rest. */
export function uncheckedReply<T extends readonly [string, ...unknown[]]>(): Check<T> {
  return { parse: (reply) => (isTagged(reply) ? reply : Tagged.parse(reply)) as T };
}

const isTagged = (reply: unknown): boolean => Array.isArray(reply) && typeof reply[0] === "string";
const Tagged = z.tuple([z.string()], z.unknown());
