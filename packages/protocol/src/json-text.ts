/**
 * Finds one member of a JSON object in its source text, so that a value can travel as its sender wrote it.
 *
 * The text is one that `JSON.parse` has accepted, so this reads a wider and simpler grammar than JSON:
 *
 *     object = space "{" space [ member { "," space member } ] "}" …
 *     member = string space ":" space value space
 *     value  = string | nested | word
 *     string = '"' { any character but '"' and "\" | "\" any character } '"'
 *     nested = ( "{" | "[" ) { string | nested | any other character } ( "}" | "]" )
 *     word   = { any character but "," "}" "]" and white space }         a number, true, false, null
 *     space  = { " " | tab | line feed | carriage return }
 *
 * One pass with a counter for the depth: no recursion, time proportional to the length of the text. For a text that
 * `JSON.parse` refuses the result means nothing, but the scan still ends in that time and throws nothing.
 */

/** A JSON value as the text its sender wrote. */
export interface JsonText {
  readonly text: string;
  /** Whether there is no white space outside of its strings. */
  readonly isCompact: boolean;
}

/** Where a member's value stands in the text, without white space around it. */
export interface MemberSpan {
  start: number;
  end: number;
  /** How many arrays and objects are open at once: 0 for a string or a number, 1 for `[]`. */
  depth: number;
  isCompact: boolean;
}

/** The value of a member of the object `text`; of the last one if there are several, as `JSON.parse` does. */
export function findMember(text: string, key: string): MemberSpan | undefined {
  let found: MemberSpan | undefined;
  const unwanted = spanAt(0);
  let at = afterSpace(text, 0);
  if (text.charCodeAt(at) !== OPEN_BRACE) return undefined;
  at = afterSpace(text, at + 1);
  while (text.charCodeAt(at) === QUOTE) {
    const keyEnd = afterString(text, at);
    const isWanted = isKey(text, at, keyEnd, key);
    const start = afterSpace(text, afterSpace(text, keyEnd) + ":".length);
    const value = isWanted ? spanAt(start) : unwanted;
    value.start = start;
    scanValue(text, value);
    if (isWanted) found = value;
    at = afterSpace(text, afterSpace(text, value.end) + ",".length);
  }
  return found;
}

/** The same JSON without white space outside of its strings. */
export function compactJson(text: string): string {
  const parts: string[] = [];
  let from = 0;
  SPACE_OR_QUOTE.lastIndex = 0;
  while (SPACE_OR_QUOTE.test(text)) {
    const at = SPACE_OR_QUOTE.lastIndex - 1;
    if (text.charCodeAt(at) === QUOTE) {
      SPACE_OR_QUOTE.lastIndex = afterString(text, at);
    } else {
      if (at > from) parts.push(text.slice(from, at));
      from = afterSpace(text, at + 1);
      SPACE_OR_QUOTE.lastIndex = from;
    }
  }
  return from === 0 ? text : parts.join("") + text.slice(from);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

const SPACE_OR_QUOTE = /[" \t\n\r]/g;
const SPACE_QUOTE_OR_NESTING = /["[\]{} \t\n\r]/g;

/** The regular expression is fast over a long run of digits and slow to call: short runs are read one by one. */
const SHORT_RUN = 8;

/** An escape such as `\u0061` stands for one character and takes six. */
const ESCAPE_LENGTH_MAX = 6;

const isSpace = (code: number): boolean =>
  code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

function afterSpace(text: string, from: number): number {
  let at = from;
  while (isSpace(text.charCodeAt(at))) at += 1;
  return at;
}

/** `from` is the opening quote. `indexOf` is many times faster than a loop over the characters. */
function afterString(text: string, from: number): number {
  let end = text.indexOf('"', from + 1);
  while (end !== -1 && text.charCodeAt(end - 1) === BACKSLASH && isEscaped(text, end))
    end = text.indexOf('"', end + 1);
  return end === -1 ? text.length : end + 1;
}

/** Whether an odd number of backslashes stands before it. A quote ends them, so each is read once: linear in all. */
function isEscaped(text: string, at: number): boolean {
  let first = at;
  while (text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
  return (at - first) % 2 === 1;
}

/** `from` and `end` are those of the string with its quotes. An escape is longer than the character it stands for. */
function isKey(text: string, from: number, end: number, key: string): boolean {
  const length = end - from - 2;
  if (length === key.length) return text.startsWith(key, from + 1) && !key.includes("\\");
  if (length < key.length || length > key.length * ESCAPE_LENGTH_MAX) return false;
  const source = text.slice(from, end);
  if (!source.includes("\\")) return false;
  try {
    return JSON.parse(source) === key;
  } catch {
    return false;
  }
}

const spanAt = (start: number): MemberSpan => ({ start, end: start, depth: 0, isCompact: true });

/** Reads the value at `span.start` and fills in the rest. */
function scanValue(text: string, span: MemberSpan): void {
  switch (text.charCodeAt(span.start)) {
    case QUOTE:
      span.end = afterString(text, span.start);
      break;
    case OPEN_BRACE:
    case OPEN_BRACKET:
      scanNested(text, span);
      break;
    default:
      span.end = afterWord(text, span.start);
  }
}

function afterWord(text: string, from: number): number {
  let at = from;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === COMMA || code === CLOSE_BRACE || code === CLOSE_BRACKET || isSpace(code)) break;
  }
  return at;
}

function scanNested(text: string, span: MemberSpan): void {
  let open = 0;
  let run = 0;
  let at = span.start;
  span.end = text.length;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = afterString(text, at);
      run = 0;
      continue;
    }
    at += 1;
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      open += 1;
      if (open > span.depth) span.depth = open;
      run = 0;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      open -= 1;
      run = 0;
      if (open === 0) {
        span.end = at;
        return;
      }
    } else if (isSpace(code)) {
      span.isCompact = false;
    } else {
      run += 1;
      if (run > SHORT_RUN) {
        SPACE_QUOTE_OR_NESTING.lastIndex = at;
        if (!SPACE_QUOTE_OR_NESTING.test(text)) return;
        at = SPACE_QUOTE_OR_NESTING.lastIndex - 1;
        run = 0;
      }
    }
  }
}
