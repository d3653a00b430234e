import { ANY_TENANT } from "@tenure/protocol";
import type { AuthToken } from "../config/tokens.ts";
import { tenantsOf } from "./principal.ts";

/**
 * All tokens of the settings and of the table. Rules that depend on which tenants there are read it at each call, because tokens
 * come and go while the instance runs. Tokens of the table count until their row is deleted, a week after their end: the
 * end of the last token of a tenant must not widen the rights of another at once.
 */
export class KnownTokens {
  readonly #sources: readonly (() => readonly AuthToken[])[];
  #all: readonly AuthToken[] | undefined;
  #isShared = false;

  constructor(sources: readonly (() => readonly AuthToken[])[]) {
    this.#sources = sources;
  }

  /** The same array until `changed`. */
  all(): readonly AuthToken[] {
    if (this.#all) return this.#all;
    this.#all = this.#sources.flatMap((tokens) => tokens());
    this.#isShared = tenantsOf(this.#all).length > 1;
    return this.#all;
  }

  changed(): void {
    this.#all = undefined;
  }

  /** Whether a token may act on what all tenants share: with a single tenant every admin may. */
  operates({ tenant }: Pick<AuthToken, "tenant">): boolean {
    this.all();
    return !this.#isShared || tenant === ANY_TENANT;
  }
}

/** Computes a value from the known tokens once, and again when they have changed. */
export function derived<T>(
  known: Pick<KnownTokens, "all">,
  compute: (all: readonly AuthToken[]) => T,
) {
  let from: readonly AuthToken[] | undefined;
  let value: T;
  return (): T => {
    const all = known.all();
    if (all !== from) {
      value = compute(all);
      from = all;
    }
    return value;
  };
}
