import type { TableToken } from "./token-codec.ts";
import type { TokenMark } from "./token-store.ts";

/**
 * The rows of the table in memory, those that are over too: their secrets are refused without a read.
 *
 * - `#byId` has one entry per row, and `#bySha256` each of its secrets: the current one, and the former one of a rotation.
 * - Only `replace` and `apply` change it. What callers present is never stored here, so no caller can push a token out.
 */
export class TokenCache {
  readonly #byId = new Map<string, TableToken>();
  readonly #bySha256 = new Map<string, TableToken>();
  #version = -1;

  get size(): number {
    return this.#byId.size;
  }

  all(): Iterable<TableToken> {
    return this.#byId.values();
  }

  /** Whether these are the rows, each with this hash. */
  matches(hashes: ReadonlyMap<string, string>): boolean {
    if (hashes.size !== this.#byId.size) return false;
    for (const [id, hash] of hashes) if (this.#byId.get(id)?.hash !== hash) return false;
    return true;
  }

  find(sha256: string): TableToken | undefined {
    return this.#bySha256.get(sha256);
  }

  /** From which version rows must be read to follow the table: 0 = all of them; `undefined` = none. */
  missingSince({ version, deleted }: Pick<TokenMark, "version" | "deleted">): number | undefined {
    if (version === this.#version) return undefined;
    // Rows were deleted, nothing was read yet, or Postgres is an older copy.
    const isWhole = deleted > this.#version || version < this.#version || this.#version < 1;
    return isWhole ? 0 : this.#version;
  }

  replace(tokens: readonly TableToken[], version: number): void {
    // A row that this instance wrote since the read began stays.
    const newer = [...this.#byId.values()].filter((token) => token.version > version);
    this.#byId.clear();
    this.#bySha256.clear();
    this.apply([...tokens, ...newer], version);
  }

  /** Takes rows over. `version` is left out for a row that this instance wrote: other changes may be missing. */
  apply(tokens: readonly TableToken[], version = this.#version): void {
    for (const token of tokens) {
      const former = this.#byId.get(token.id);
      if (former && former.version > token.version) continue;
      if (former) this.#unlist(former);
      this.#byId.set(token.id, token);
      if (token.formerSha256 && !this.#bySha256.has(token.formerSha256))
        this.#bySha256.set(token.formerSha256, token);
      // The current secret of a row decides over the former one of another.
      this.#bySha256.set(token.sha256, token);
    }
    this.#version = version;
  }

  #unlist(token: TableToken): void {
    for (const sha256 of [token.sha256, token.formerSha256 ?? ""])
      if (this.#bySha256.get(sha256)?.id === token.id) this.#bySha256.delete(sha256);
  }
}

/** Whether a secret of the token is good at this time of Postgres. */
export function isGood(token: TableToken, sha256: string, nowMs: number): boolean {
  if (token.isRevoked || token.used || nowMs >= token.endsMs) return false;
  return token.sha256 === sha256 || nowMs < token.formerUntilMs;
}
