import { atEndOfTurn } from "./tick.ts";

/** Whoever asks together does so in one call of a script, which takes some thousands of arguments and no more. */
const TOGETHER_MAX = 1_000;

/**
 * Gathers what is asked for within one turn of the event loop, by key, and asks for it together.
 *
 * The sibling of `gather`, which waits for the answer before: here nothing waits for longer than the turn, and
 * batches of one key overlap. `together` answers in the order of the items.
 */
export function perTurn<Item, Answer>(
  together: (key: string, items: Item[]) => Promise<readonly Answer[]>,
): (key: string, item: Item) => Promise<Answer> {
  interface Asked {
    item: Item;
    resolve: (answer: Answer) => void;
    reject: (error: unknown) => void;
  }
  let turn: Map<string, Asked[]> | undefined;

  function ask(): void {
    const batches = turn;
    turn = undefined;
    for (const [key, asked] of batches ?? [])
      for (let from = 0; from < asked.length; from += TOGETHER_MAX)
        void answer(key, asked.slice(from, from + TOGETHER_MAX));
  }

  async function answer(key: string, asked: Asked[]): Promise<void> {
    try {
      const answers = await together(
        key,
        asked.map(({ item }) => item),
      );
      for (const [index, { resolve }] of asked.entries()) resolve(answers[index] as Answer);
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }

  return (key, item) =>
    new Promise((resolve, reject) => {
      if (!turn) {
        turn = new Map();
        atEndOfTurn("gather", ask);
      }
      const asked = turn.get(key);
      if (asked) asked.push({ item, resolve, reject });
      else turn.set(key, [{ item, resolve, reject }]);
    });
}
