import { isIP } from "node:net";
import * as z from "zod";
import { didYouMean } from "./problems.ts";

// The kinds of value a setting can have. Each takes the default and what the setting trades, and reports in one
// sentence what it accepts. No sentence repeats the value: it may be a secret in the wrong place.

/** A brace in an id would move its Redis key to another slot, hence the narrow alphabet. */
export const ID = /^[A-Za-z0-9._:@/-]{1,128}$/;

/** Timers of Node turn anything longer than 2^31 − 1 ms into 1 ms. */
export const MS_MAX = 2_147_483_647;
export const SECONDS_MAX = 2_147_483;

const TEXT_LENGTH_MAX = 4096;
const LIST_LENGTH_MAX = 256;

export function wholeNumber(
  byDefault: number,
  range: { min: number; max: number },
  summary: string,
) {
  return boundedInt(range).default(byDefault).describe(summary);
}

export function optionalWholeNumber(range: { min: number; max: number }, summary: string) {
  return boundedInt(range).optional().describe(summary);
}

export function boundedInt({ min, max }: { min: number; max: number }) {
  const must = `must be a whole number from ${min} to ${max}`;
  return z.int(must).min(min, must).max(max, must);
}

export function flag(byDefault: boolean, summary: string) {
  return z.boolean("must be true or false").default(byDefault).describe(summary);
}

export function choice<const Names extends readonly [string, ...string[]]>(names: Names) {
  return z.enum(names, {
    error: ({ input }) =>
      `must be one of ${names.join(", ")}${typeof input === "string" ? didYouMean(input, names) : ""}`,
  });
}

export function text(byDefault: string, rule: TextRule, summary: string) {
  return ruledText(rule).default(byDefault).describe(summary);
}

export function textList(rule: TextRule, summary: string) {
  return listOf(ruledText(rule)).default([]).describe(summary);
}

export function listOf<Entry extends z.ZodType>(entry: Entry) {
  return z
    .array(entry, "must be a list")
    .max(LIST_LENGTH_MAX, `must have at most ${LIST_LENGTH_MAX} entries`);
}

/** What a text must look like, and the sentence for one that does not. */
export interface TextRule {
  accepts: (value: string) => boolean;
  must: string;
}

export function ruledText({ accepts, must }: TextRule) {
  return z.string(must).refine((value) => value.length <= TEXT_LENGTH_MAX && accepts(value), must);
}

export const anyText: TextRule = { accepts: () => true, must: "must be a text" };

export const filled: TextRule = {
  accepts: (value) => value.trim() !== "",
  must: "must be a text that is not empty",
};

export const id: TextRule = {
  accepts: (value) => ID.test(value),
  must: "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : @ / -",
};

export const sha256Hex: TextRule = {
  accepts: (value) => /^[0-9a-f]{64}$/i.test(value),
  must: "must be a SHA-256 in 64 hexadecimal digits",
};

export const origin: TextRule = {
  accepts: (value) => URL.canParse(value) && new URL(value).origin === value,
  must: 'must be an origin such as "https://console.example.com", without a path',
};

export const network: TextRule = {
  accepts(value) {
    const [, address = "", bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(value) ?? [];
    const family = isIP(address);
    return family !== 0 && Number(bits ?? 0) <= (family === 6 ? 128 : 32);
  },
  must: 'must be a network such as "10.0.0.0/8", or an IP address',
};

export function url({ schemes }: { schemes: readonly string[] }): TextRule {
  return {
    accepts: (value) => schemes.includes(schemeOf(value)),
    must: `must be a URL that starts with ${schemes.map((scheme) => `${scheme}//`).join(" or ")}`,
  };
}

export function emptyOr(rule: TextRule): TextRule {
  return {
    accepts: (value) => value === "" || rule.accepts(value),
    must: `${rule.must}, or be empty`,
  };
}

// A parsed scheme is not enough: `redis:6379` is a valid URL without a host.
const schemeOf = (value: string): string =>
  URL.canParse(value) && value.includes("://") ? new URL(value).protocol : "";
