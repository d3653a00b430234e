// biome-ignore lint/suspicious/noControlCharactersInRegex: the expression matches control characters
const HOSTILE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Replaces characters that could move the cursor or hide text: the text comes from other machines. */
export function printable(text: string): string {
  return text.replace(HOSTILE, "\ufffd");
}

/** JSON of a value with terminal control characters escaped. */
export function printableJson(value: unknown): string {
  const escaped = (char: string): string =>
    `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;
  // Line breaks come from the indentation; those inside strings are already escaped.
  return JSON.stringify(value, null, 2).replace(HOSTILE, (char) =>
    char === "\n" ? char : escaped(char),
  );
}
