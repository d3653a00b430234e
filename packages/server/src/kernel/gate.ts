const TAKEN_OUT_AT = 1_000;

/**
 * Lets so many through at once; the others wait in the order they came.
 *
 * Before a store it keeps a crowd of newcomers from standing between everybody else and the answers to what they have
 * begun: commands are answered in the order they were sent.
 */
export function createGate(insideMax: number): <T>(act: () => Promise<T>) => Promise<T> {
  let inside = 0;
  let outside: (() => void)[] = [];
  let called = 0; // of those outside, from the front; taken out by the thousand, not one by one

  function enter(): Promise<void> | undefined {
    if (inside < insideMax) {
      inside += 1;
      return undefined;
    }
    return new Promise((resolve) => outside.push(resolve));
  }

  /** Its place goes to the next, if there is one. */
  function leave(): void {
    const next = outside[called];
    if (!next) {
      inside -= 1;
      return;
    }
    called += 1;
    if (called === outside.length || called === TAKEN_OUT_AT) {
      outside = outside.slice(called);
      called = 0;
    }
    next();
  }

  return async (act) => {
    await enter();
    try {
      return await act();
    } finally {
      leave();
    }
  };
}
