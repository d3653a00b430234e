/** Keeps the end of what was said, for the report of a failure. */
export interface Tail {
  add(bytes: Buffer): void;
  /** The last lines, as text that every store takes. */
  text(): string;
}

export function createTail({ bytesMax, linesMax }: { bytesMax: number; linesMax: number }): Tail {
  let kept: Buffer = Buffer.alloc(0);
  return {
    add(bytes) {
      const joined = bytes.length >= bytesMax ? bytes : Buffer.concat([kept, bytes]);
      // Copied: a part of a chunk would keep the whole chunk in memory.
      kept = Buffer.from(joined.subarray(Math.max(0, joined.length - bytesMax)));
    },
    text: () =>
      storable(kept.toString("utf8")).trimEnd().split("\n").slice(-linesMax).join("\n").trim(),
  };
}

/** Postgres refuses NUL in text, and half a character, which a cut may leave. */
export const storable = (text: string): string =>
  text.replaceAll("\0", "\uFFFD").replace(/\p{Surrogate}/gu, "\uFFFD");
