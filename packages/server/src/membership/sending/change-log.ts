import type { MemberChange } from "../members-view.ts";

export type NumberedChange = MemberChange & { seq: number };

/** Changes are kept for readers that are behind; one that is further behind gets the whole list. */
const KEPT_MAX = 5_000;

/** The last changes of the members, in the order of their numbers, which never skip. */
export class ChangeLog {
  readonly #keptMax: number;
  #changes: NumberedChange[] = [];

  constructor(keptMax: number = KEPT_MAX) {
    this.#keptMax = keptMax;
  }

  /** The number of the last change. */
  get last(): number {
    return this.#changes.at(-1)?.seq ?? 0;
  }

  append(changes: readonly NumberedChange[]): void {
    this.#changes.push(...changes);
    if (this.#changes.length > 2 * this.#keptMax)
      this.#changes = this.#changes.slice(-this.#keptMax);
  }

  /** The changes after this number; undefined when one of them is not kept any more. */
  since(seq: number): readonly NumberedChange[] | undefined {
    const first = this.#changes[0];
    if (!first) return [];
    const index = seq + 1 - first.seq;
    return index < 0 ? undefined : this.#changes.slice(index);
  }
}
