/** Keeps the end of an output, for the report of a failure. */
export interface Tail {
  add(bytes: Buffer): void;
  /** Returns the last lines, as text that every store accepts. */
  text(): string;
}

export function createTail({ bytesMax, linesMax }: { bytesMax: number; linesMax: number }): Tail {
  let kept: Buffer = Buffer.alloc(0);
  return {
    add(bytes) {
      const joined = bytes.length >= bytesMax ? bytes : Buffer.concat([kept, bytes]);
      // Copied, because a slice would keep its whole chunk in memory.
      kept = Buffer.from(joined.subarray(Math.max(0, joined.length - bytesMax)));
    },
    text: () =>
      storable(kept.toString("utf8")).trimEnd().split("\n").slice(-linesMax).join("\n").trim(),
  };
}

/** Replaces characters that Postgres rejects: NUL, and the half of a character that a cut may leave. */
export const storable = (text: string): string =>
  text.replaceAll("\0", "\uFFFD").replace(/\p{Surrogate}/gu, "\uFFFD");
