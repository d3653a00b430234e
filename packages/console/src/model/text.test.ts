import { expect, test } from "vitest";
import { pieces, visible } from "./text.ts";

test("plain text stays one piece, in any script", () => {
  for (const text of ["", "web-1", "</script><b>&amp;", "日本語 عربى עברית", "naïve 😀"]) {
    expect(pieces(text)).toEqual([{ text }]);
    expect(visible(text)).toBe(text);
  }
});

test.each([
  ["\u0000", "\\x00"],
  ["\n", "\\n"],
  ["\u001b", "\\x1b"],
  ["\u0085", "\\x85"],
  ["\u00ad", "\\xad"],
  ["\u200b", "\\u200b"],
  ["\u202e", "\\u202e"],
  ["\u2066", "\\u2066"],
  ["\ufeff", "\\ufeff"],
  ["\u{e0041}", "\\u{e0041}"],
])("%j is shown as %s, in its place", (character, mark) => {
  expect(visible(`a${character}b`)).toBe(`a${mark}b`);
  expect(pieces(`a${character}b`)).toMatchObject([{ text: "a" }, { mark }, { text: "b" }]);
});

test("a mark names its character", () => {
  expect(pieces("\u202e")).toEqual([{ mark: "\\u202e", name: "U+202E right-to-left override" }]);
});

test("the same text is judged the same every time", () => {
  for (let count = 0; count < 3; count++) expect(pieces("\u202e")).toHaveLength(1);
});

test("a tab of a log stays a tab", () => {
  expect(
    pieces("a\tb", { tabs: true })
      .map((piece) => "text" in piece && piece.text)
      .join(""),
  ).toBe("a\tb");
  expect(visible("a\tb")).toBe("a\\tb");
});
