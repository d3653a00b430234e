interface Line {
  all: Promise<void>;
  closing: Promise<void>;
}

const NOTHING_BEFORE: Line = { all: Promise.resolve(), closing: Promise.resolve() };

/**
 * The order of a session's messages about its turns: they take effect in the order they arrived.
 *
 * Work that `joins` the current turn does not wait for other joins, because their order makes no difference: it waits for the
 * closing before it. Work that `closes` a turn waits for all before it.
 */
export class TurnOrder {
  /** By session: the end of all work so far, and of the last closing. */
  readonly #lines = new Map<string, Line>();

  /** Starts `work` at once. It calls `inOrder` to wait for the work before it. */
  async run<T>(
    sessionId: string,
    kind: "joins" | "closes",
    work: (inOrder: () => Promise<void>) => Promise<T>,
  ): Promise<T> {
    const { all, closing } = this.#lines.get(sessionId) ?? NOTHING_BEFORE;
    const working = work(() => (kind === "joins" ? closing : all));
    // Work that fails does not block the next.
    const over = Promise.allSettled([all, working]).then(() => {
      if (this.#lines.get(sessionId)?.all === over) this.#lines.delete(sessionId);
    });
    this.#lines.set(sessionId, { all: over, closing: kind === "closes" ? over : closing });
    return working;
  }
}
