import { expect, test } from "vitest";
import { parseWords, resolveWrapper } from "./wrapper.ts";

test.each([
  ["bwrap --ro-bind / /", ["bwrap", "--ro-bind", "/", "/"]],
  ["  a\tb\n c ", ["a", "b", "c"]],
  [`a "b c" 'd "e' f\\ g`, ["a", "b c", 'd "e', "f g"]],
  [`a "b \\"c\\" \\n" x'y z'w`, ["a", 'b "c" \\n', "xy zw"]],
  [`a '' ""`, ["a", "", ""]],
  ["a $HOME `id` ; b | c", ["a", "$HOME", "`id`", ";", "b", "|", "c"]],
])("%j is split without a shell", (text, words) => {
  expect(parseWords(text)).toEqual(words);
});

test.each(["", "   ", `a "b`, "a 'b", "a \\"])("%j is refused", (text) => {
  expect(parseWords(text)).toBeUndefined();
});

test("a program is found in the agent's PATH, or refused with a reason", () => {
  expect(resolveWrapper(["sh", "-c"], "/nowhere:/bin")).toEqual(["/bin/sh", "-c"]);
  expect(resolveWrapper(["/bin/sh"], "")).toEqual(["/bin/sh"]);
  expect(() => resolveWrapper(["no-such-program"], "/bin")).toThrow("no-such-program");
  expect(() => resolveWrapper(["./sh"], "/bin")).toThrow("absolute path");
});
