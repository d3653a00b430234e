import { describe, expect, test } from "vitest";
import { PATTERN_LENGTH_MAX } from "./eligibility.ts";
import { matchWhole, patternProblem } from "./pattern.ts";

describe("a pattern", () => {
  test.each([
    ["@acme/.+@1\\..*", "@acme/web@1.2.3", true],
    ["acme", "@acme/web@1.2.3", false],
    ["a|b", "b", true],
    ["a|b", "ab", false],
    ["^a$", "a", true],
    ["\\/\\@\\-", "/@-", true],
    ["(?<scope>@acme)/.*", "@acme/web@1.2.3", true],
  ])("%s matches the whole of %s: %s", (pattern, text, isMatch) => {
    expect(matchWhole(pattern, text)).toBe(isMatch);
    expect(matchWhole(pattern, text)).toBe(isMatch);
    expect(patternProblem(pattern)).toBeUndefined();
  });

  test.each([
    ["(", "RE2 syntax"],
    ["a)|(b", "RE2 syntax"],
    ["(?!evil).*", "RE2 syntax"],
    ["(?<=@)acme.*", "RE2 syntax"],
    ["(a)\\1", "RE2 syntax"],
    ["\\p{L}*", "RE2 syntax"],
    ["(?:a{0,60}){0,60}b", "counted repetitions"],
    ["(.*a){0,999}", "counted repetitions"],
    ["a{1000}".repeat(140), "counted repetitions"],
    ["a".repeat(PATTERN_LENGTH_MAX + 1), "at most 1024 characters"],
  ])("%j cannot be read, and matches nothing", (pattern, problem) => {
    expect(patternProblem(pattern)).toMatch(/^must /);
    expect(patternProblem(pattern)).toContain(problem);
    expect(matchWhole(pattern, "a")).toBe(false);
    expect(matchWhole(pattern, pattern)).toBe(false);
  });

  test.each([
    ["many names", Array.from({ length: 40 }, (_, n) => `${n}-package-of-acme`).join("|")],
    ["many optional characters", ".?".repeat(PATTERN_LENGTH_MAX / 2)],
    ["many groups", "(a?)".repeat(PATTERN_LENGTH_MAX / 4)],
    ["versions with counts", "@[a-z]{1,40}/[a-z-]{1,80}@(?:\\d{1,4}\\.){2}\\d{1,6}"],
  ])("of %s is not too large", (_, pattern) => {
    expect(patternProblem(pattern)).toBeUndefined();
  });
});

test("a pattern that a backtracking engine never ends takes a moment", { timeout: 30_000 }, () => {
  for (let n = 0; n < 1_000; n++)
    expect(matchWhole("(a+)+b", `${"a".repeat(300)}${n}`)).toBe(false);
});

test("patterns and answers beyond the cache's bounds are judged as before", () => {
  for (let n = 0; n < 1_100; n++) expect(matchWhole(`web@${n}.*`, `web@${n}.0`)).toBe(true);
  for (let n = 0; n < 200; n++) matchWhole(`.{0,700}@${n}`, "web@1.0.0");
  expect(matchWhole("web@1.*", "web@1.0")).toBe(true);
  expect(matchWhole("web@1.*", "web@2.0")).toBe(false);
});
