import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TenureError } from "./errors.ts";
import { JSON_DEPTH_MAX } from "./formats.ts";
import { compactJson, findMember } from "./json-text.ts";
import { memberText } from "./parse.ts";

const SEED = { seed: 17, numRuns: 2_000 };

const textOf = (text: string, key: string): string | undefined => {
  const span = findMember(text, key);
  return span && text.slice(span.start, span.end);
};

describe("a member's text", () => {
  test.each([
    ['{"payload":9007199254740993}', "9007199254740993"],
    ['{"payload":12345678901234567890}', "12345678901234567890"],
    ['{"payload":1e400}', "1e400"],
    ['{"payload":-0}', "-0"],
    ['{"payload":1.0,"pool":"gpu"}', "1.0"],
    ['{"payload":{"a":1,"a":2}}', '{"a":1,"a":2}'],
    [' \t\r\n{ "pool" : "gpu" ,\n"payload" : [ 1 , 2 ] } \n', "[ 1 , 2 ]"],
    ['{"payload":1,"payload":null}', "null"],
    ['{"payload":1,"pay\\u006coad":2}', "2"],
    ['{"pay\\u006coad":"\\ud800"}', '"\\ud800"'],
    ['{"pool":{"payload":1},"list":["payload",{"payload":2}]}', undefined],
    ['{"pool":"\\",\\"payload\\":1"}', undefined],
    ['{"pool":"\\\\","payload":"\\\\\\""}', '"\\\\\\""'],
    ['{"payload":"]}","pool":"[{"}', '"]}"'],
    ['{"payload":""}', '""'],
    ['{"payloads":1,"payloa":2,"Payload":3,"":4}', undefined],
    ['{"__proto__":{"payload":1},"payload":2}', "2"],
    ["{}", undefined],
    ["[1]", undefined],
    ['"payload"', undefined],
    ["null", undefined],
  ])("of %s is %s", (text, expected) => {
    JSON.parse(text);
    expect(textOf(text, "payload")).toBe(expected);
  });

  test("counts how deep it is, and sees white space outside of strings only", () => {
    const span = (value: string) => findMember(`{ "v" : ${value} }`, "v");
    expect(span('" [[ "')).toMatchObject({ depth: 0, isCompact: true });
    expect(span("[]")).toMatchObject({ depth: 1, isCompact: true });
    expect(span('[[],{"a":[]},"[ [ [ ["]')).toMatchObject({ depth: 3, isCompact: true });
    expect(span("[1,12345678901234567890, 2]")).toMatchObject({ depth: 1, isCompact: false });
    expect(span("[\n]")).toMatchObject({ depth: 1, isCompact: false });
  });

  test("may be as deep as a value may be, also where the parsed value has less of it", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    const body = (depth: number) => `{"payload":{"twice":${nested(depth - 1)},"twice":1}}`;
    const cut = (depth: number) => memberText(body(depth), "payload", "INVALID_REQUEST");
    expect(cut(JSON_DEPTH_MAX)?.text).toHaveLength(2 * JSON_DEPTH_MAX + 18);
    const message = "must be nested at most 256 deep";
    const details = { reason: `payload: ${message}`, issues: [{ path: "payload", message }] };
    expect(() => cut(JSON_DEPTH_MAX + 1)).toThrow(new TenureError("INVALID_REQUEST", details));
  });
});

// --- against JSON.parse ---

const space = fc.stringMatching(/^[ \t\n\r]{0,3}$/);

/** A string with some of its characters written as escapes. */
const stringSource = fc
  .tuple(
    fc.oneof(
      fc.string({ unit: "binary", maxLength: 12 }),
      fc.string({ unit: fc.constantFrom("\\", '"', "{", "}", "[", "]", ",", ":", " ", "\ud83d") }),
      fc.constantFrom("payload", "body", "__proto__", "", "\ud800", "\u2028", "\ufeff"),
    ),
    fc.infiniteStream(fc.boolean()),
  )
  .map(([value, escapes]) => {
    const units = value.split("");
    const source = units.map((unit) => {
      if (!escapes.next().value) return JSON.stringify(unit).slice(1, -1);
      return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
    });
    return `"${source.join("")}"`;
  });

const wordSource = fc.oneof(
  fc.constantFrom("null", "true", "false", "-0", "1e400", "9007199254740993", "1.0", "1E+2"),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
  fc.bigInt().map(String),
);

/** The source of any value, with white space wherever it may stand. */
const { value: valueSource } = fc.letrec<{ value: string; spaced: string }>((tie) => ({
  spaced: fc.tuple(space, tie("value"), space).map((parts) => parts.join("")),
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    wordSource,
    stringSource,
    fc.array(tie("spaced"), { maxLength: 4 }).map((items) => `[${items.join()}]`),
    space.map((inside) => `[${inside}]`),
    fc
      .array(fc.tuple(space, stringSource, space, tie("spaced")), { maxLength: 4 })
      .map((members) => `{${members.map(([a, key, b, value]) => `${a + key + b}:${value}`)}}`),
  ),
}));

const objectSource = fc
  .tuple(
    fc.array(
      fc.tuple(
        space,
        fc.oneof(stringSource, fc.constantFrom('"payload"', '"b\\u006fdy"')),
        space,
        space,
        valueSource,
        space,
      ),
      { maxLength: 5 },
    ),
    space,
    space,
    space,
  )
  .map(([members, before, inside, after]) => {
    const sources = members.map(([a, key, b, c, value, d]) => `${a + key + b}:${c + value + d}`);
    return `${before}{${sources.length > 0 ? sources.join() : inside}}${after}`;
  });

test("finds in any object what JSON.parse finds, under every key", () => {
  fc.assert(
    fc.property(objectSource, stringSource, (text, other) => {
      const parsed = JSON.parse(text) as Record<string, unknown>;
      for (const key of [...Object.keys(parsed), JSON.parse(other) as string, "payload"]) {
        const found = textOf(text, key);
        expect(found !== undefined).toBe(Object.hasOwn(parsed, key));
        if (found === undefined) continue;
        expect(JSON.parse(found)).toEqual(parsed[key]);
        expect(found).toBe(found.trim());
      }
    }),
    SEED,
  );
});

test("gives back exactly the text that was put in, wherever the member stands", () => {
  const member = fc.tuple(stringSource, valueSource).map(([key, value]) => `${key}:${value}`);
  fc.assert(
    fc.property(
      fc.array(member, { maxLength: 3 }),
      valueSource,
      fc.array(member, { maxLength: 3 }),
      (before, value, after) => {
        // A name that none of the others can have.
        const text = `{${[...before, `"the only one so named":${value}`, ...after].join(" , ")}}`;
        expect(textOf(text, "the only one so named")).toBe(value);
      },
    ),
    SEED,
  );
});

test("a value is compact when compacting changes nothing", () => {
  fc.assert(
    fc.property(valueSource, (value) => {
      const span = findMember(`{"v":${value}}`, "v");
      const compact = compactJson(value);
      expect(span?.isCompact).toBe(compact === value);
      expect(JSON.parse(compact)).toEqual(JSON.parse(value));
      expect(compactJson(compact)).toBe(compact);
    }),
    SEED,
  );
});

test("a value is as deep as brackets outside of its strings are", () => {
  fc.assert(
    fc.property(valueSource, (value) => {
      let open = 0;
      let deepest = 0;
      for (const character of value.replace(/"(?:[^"\\]|\\.)*"/g, "")) {
        open += Number("[{".includes(character)) - Number("]}".includes(character));
        deepest = Math.max(deepest, open);
      }
      expect(findMember(`{"v":${value}}`, "v")?.depth).toBe(deepest);
    }),
    SEED,
  );
});

test("what JSON.stringify indents compacts to what it writes without", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(1, 2, "\t", "\r\n"), (value, indent) => {
      expect(compactJson(JSON.stringify(value, null, indent))).toBe(JSON.stringify(value));
    }),
    SEED,
  );
});

test("a text that is not JSON ends the scan without an error", () => {
  const noise = fc.string({
    unit: fc.constantFrom("{", "}", "[", "]", '"', "\\", ":", ",", " ", "u", "1", "payload"),
    maxLength: 60,
  });
  const broken = fc.tuple(objectSource, fc.nat(), fc.nat(3), noise).map(([text, at, gone, put]) => {
    const cut = at % (text.length + 1);
    return text.slice(0, cut) + put + text.slice(cut + gone);
  });
  fc.assert(
    fc.property(fc.oneof(noise, broken, fc.string({ unit: "binary" })), (text) => {
      const span = findMember(text, "payload");
      if (span) expect(span.start).toBeLessThanOrEqual(span.end);
      if (span) expect(span.end).toBeLessThanOrEqual(text.length);
      compactJson(text);
    }),
    { ...SEED, numRuns: 20_000 },
  );
});

describe("the time for a text of 1 MiB", () => {
  const LENGTH = 1_024 * 1_024;
  const filled = (unit: string) => unit.repeat(LENGTH / unit.length);
  // Each of these takes minutes if any part of the scan is quadratic, and would overflow a recursive one.
  test.each([
    ["nested arrays", `{"v":${filled("[")}${filled("]")}}`],
    ["brackets that never close", `{"v":${filled("[")}`],
    ["nested objects", `{"v":${filled('{"v":')}1${"}".repeat(LENGTH / 5)}}`],
    ["one string", `{"v":"${filled("x")}"}`],
    ["escaped quotes", `{"v":"${filled('\\"')}"}`],
    ["backslashes", `{"v":"${filled("\\\\")}"}`],
    ["a string that never ends", `{"v":"${filled("\\\\")}\\"`],
    ["quotes alone", `{${filled('"')}`],
    ["backslashes between quotes", `{"v":["${filled('\\\\\\"')}"]}`],
    ["empty strings", `{"v":[${filled('"",')}1]}`],
    ["digits", `{"v":${filled("1")}}`],
    ["white space", `{"v":${filled(" ")}1${filled("\n")}}`],
    ["spaces between numbers", `{"v":[${filled("1, ")}1]}`],
    ["members", `{${filled('"v":1,')}"v":1}`],
    ["members with escapes", `{${filled('"\\u0076":1,')}"v":1}`],
    ["one key", `{"${filled("v")}":1}`],
  ])("is short: %s", (_, text) => {
    const beganMs = performance.now();
    const span = findMember(text, "v");
    compactJson(text);
    expect(performance.now() - beganMs).toBeLessThan(10_000);
    expect(span?.end ?? 0).toBeLessThanOrEqual(text.length);
  });
});
