// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
const HOSTILE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Names and sentences come from other machines: what could move the cursor or hide text is shown as a mark. */
export function printable(text: string): string {
  return text.replace(HOSTILE, "\ufffd");
}

/** JSON of the same value, with what a terminal might obey in its escaped form. */
export function printableJson(value: unknown): string {
  const escaped = (char: string): string =>
    `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;
  // The line breaks are JSON's own: those of a text are escaped already.
  return JSON.stringify(value, null, 2).replace(HOSTILE, (char) =>
    char === "\n" ? char : escaped(char),
  );
}
