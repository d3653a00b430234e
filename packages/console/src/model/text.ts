/**
 * Names, labels, errors and logs come from other machines. Characters that could hide or reorder text are shown as
 * marks: control characters, invisible characters and changes of the writing direction.
 */
const HOSTILE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression matches control characters
  // biome-ignore lint/suspicious/noMisleadingCharacterClass: each character is matched alone
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/u;
const HOSTILE_ALL = new RegExp(HOSTILE, "gu");

export type Piece = { text: string } | { mark: string; name: string };

/** Splits a text into plain parts and marks for unsafe characters. Tabs are allowed. */
export function pieces(text: string, { tabs = false } = {}): Piece[] {
  if (!HOSTILE.test(text)) return [{ text }];
  const found: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(HOSTILE_ALL)) {
    const [character] = match;
    if (tabs && character === "\t") continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index) });
    found.push({ mark: markOf(character), name: nameOf(character) });
    from = match.index + character.length;
  }
  if (from < text.length) found.push({ text: text.slice(from) });
  return found;
}

/** The same as one string, for titles and labels without markup. */
export function visible(text: string): string {
  return text.replace(HOSTILE_ALL, markOf);
}

function markOf(character: string): string {
  const code = character.codePointAt(0)!;
  const known = SHORT.get(character);
  if (known) return known;
  const hex = code.toString(16);
  if (code > 0xffff) return `\\u{${hex}}`;
  return code > 0xff ? `\\u${hex.padStart(4, "0")}` : `\\x${hex.padStart(2, "0")}`;
}

function nameOf(character: string): string {
  const code = `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;
  return `${code} ${NAMES.get(character) ?? "a character that cannot be seen"}`;
}

const SHORT = new Map([
  ["\t", "\\t"],
  ["\n", "\\n"],
  ["\r", "\\r"],
]);

const NAMES = new Map([
  ["\0", "null"],
  ["\t", "tab"],
  ["\n", "line feed"],
  ["\r", "carriage return"],
  ["\u001b", "escape, as terminals obey it"],
  ["\u007f", "delete"],
  ["\u200b", "space of no width"],
  ["\u200e", "left-to-right mark"],
  ["\u200f", "right-to-left mark"],
  ["\u2028", "line separator"],
  ["\u202a", "left-to-right embedding"],
  ["\u202b", "right-to-left embedding"],
  ["\u202c", "end of a change of direction"],
  ["\u202d", "left-to-right override"],
  ["\u202e", "right-to-left override"],
  ["\u2066", "left-to-right isolate"],
  ["\u2067", "right-to-left isolate"],
  ["\u2068", "isolate"],
  ["\u2069", "end of an isolate"],
  ["\ufeff", "byte order mark"],
]);
